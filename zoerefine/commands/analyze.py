"""zoerefine analyze: many runs -> one graph, tables and a report page. diff: two runs compared."""

from collections.abc import Sequence

from zoerefine.base.messages import counted, one_line, visible
from zoerefine.commands.options import Parser, add_shared, as_path, print_json, text_beside_json
from zoerefine.lab.analysis.pictures.style import LAYOUTS

DESCRIPTION = """\
Compare runs: which settings are best, whether the difference is significant, which settings
matter, and what they cost. Runs that differ only in their seed form one group.

Our own trainings are compared by AbsRel. --metric compares runs of any script by any metric that
they logged: to metrics.jsonl, for TensorBoard, as CSV, or in their output. Runs that MLflow, W&B
(offline) or TensorBoard recorded are read, too: give their folder or database.

Writes one graph (overview.png, .pdf, .svg), a report page (report.html) and the numbers (runs.csv,
groups.csv, scenes.csv, differences.csv). docs/analysis.md explains them.
"""
EXAMPLES = """\
examples, after `make demo`:
  zoerefine analyze runs/demo/latest --out report
  zoerefine analyze runs/demo/latest --out report_of_rmse --metric val.refined.rmse
  zoerefine analyze 'runs/demo/*' --out report_by_loss --by LOSS.OBJECT_WEIGHT
  zoerefine analyze 'runs/demo/*' --out report_of_two --by MODEL.MAX_LOG --baseline 'max_log 1'
  zoerefine analyze 'runs/*/*' --out report_of_few --where "TRAIN.LR>1e-4 and MODEL.MAX_LOG<=2"
"""


def main(argv: Sequence[str]) -> int:
    """Analyse many runs."""
    parser = Parser("zoerefine analyze", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN",
        help="runs, studies, stores of MLflow, W&B or TensorBoard, or globs of them")  # fmt: skip
    add("--out", type=as_path, required=True, metavar="DIR", help="folder of the files to write")
    add("--where", default="", metavar="FILTER",
        help="only runs that match: comparisons of config keys, state, seed and commit, joined by "
        "and, or, not")  # fmt: skip
    add("--by", metavar="KEY",
        help="form groups by this config key alone (default: by all keys except the "
        "seed)")  # fmt: skip
    add("--baseline", default="", metavar="GROUP",
        help="compare every group with this one alone, by its name in groups.csv; fewer tests need "
        "fewer seeds (default: every pair)")  # fmt: skip
    add("--style", choices=LAYOUTS, default="page",
        help="size of the graph and of its texts: for a page (the default), or as wide as the text "
        "or a column of a paper, with the caption in overview.tex")  # fmt: skip
    add_shared(parser, "--quiet")
    add("--metric", action="append", default=[], metavar="NAME",
        help="compare by the final value of this metric, e.g. val_acc; several are written to a "
        "folder each (default: AbsRel, or the only metric of runs of other scripts)")  # fmt: skip
    add_shared(parser, "--maximize", "--metric-pattern")
    add("--to-mlflow", metavar="URI",
        help="also write the runs to MLflow: a folder, a SQLite database or a server; runs that "
        "are there are not written again")  # fmt: skip
    args = parser.parse_args(argv)

    from zoerefine.lab.analysis.analyze import analyze
    from zoerefine.lab.runs.collect import FILTERED, known_trials

    if args.to_mlflow is not None:
        from zoerefine.lab.runs.trackers.mlflow_export import check_uri

        check_uri(args.to_mlflow)
    collection, paths = analyze(
        args.runs,
        args.out,
        args.where,
        args.by,
        args.metric,
        args.maximize,
        args.baseline,
        args.style,
        args.metric_pattern,
    )
    for folder, reason in collection.left_out.items():
        if reason != FILTERED:
            print(visible(f"left out {folder}: {reason}"))
    filtered = list(collection.left_out.values()).count(FILTERED)
    if filtered:
        print(f"--where left out {counted(filtered, 'run')}")
    for run in collection.runs:
        for fault in run.faults:
            print(visible(f"note on {run.path}: {one_line(fault)}"))
    for study, count in known_trials(collection.runs).items():
        known = f"{counted(count, 'trial')} that it knows from earlier studies"
        print(visible(f"note on {study}: {known} have no runs there, and are not listed"))
    for path in paths:
        print(path)
    if args.to_mlflow is not None:
        from zoerefine.lab.runs.trackers.mlflow_export import export_runs

        print(visible(export_runs(args.runs, collection, args.to_mlflow)))
    return 0


DIFF_EXAMPLES = """\
examples, after `make demo`:
  zoerefine diff runs/demo/latest/trials/0000 runs/demo/latest/trials/0001
  zoerefine diff runs/demo/latest/trials/0000 runs/demo/latest/best --picture difference.png
"""


def diff(argv: Sequence[str]) -> int:
    """Print the differences between two runs."""
    parser = Parser(
        "zoerefine diff",
        "Print the differences between two runs: settings, commit, environment, data, "
        "metrics and weights.",
        DIFF_EXAMPLES,
    )
    parser.add_argument("first", metavar="RUN", help="a run directory")
    parser.add_argument("second", metavar="OTHER", help="another run directory")
    parser.add_argument(
        "--picture", type=as_path, metavar="FILE",
        help="also draw one held-out frame as each run's refiner predicts it",
    )  # fmt: skip
    add_shared(parser, "--json")
    args = parser.parse_args(argv)

    from zoerefine.lab.analysis.diff import diff_facts, diff_runs, one_run

    if args.json:
        print_json(diff_facts(one_run(args.first), one_run(args.second)))
    else:
        print(diff_runs(args.first, args.second))
    if args.picture:
        from zoerefine.depth.report_frames import draw_side_by_side

        draw_side_by_side(one_run(args.first), one_run(args.second), args.picture)
        with text_beside_json(args.json):
            print(args.picture)
    return 0
