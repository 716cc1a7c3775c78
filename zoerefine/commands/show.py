"""zoerefine show: a page about a run or an engine bundle."""

import shlex
from collections.abc import Sequence
from types import ModuleType

from zoerefine.base.errors import UserError
from zoerefine.base.messages import visible
from zoerefine.base.run_dir import ENGINE, RunDir
from zoerefine.commands.options import Parser, add_shared, as_path, print_json
from zoerefine.lab.launch.record.show import run_facts, show_run

EPILOG = """\
examples, after `make demo`:
  zoerefine show runs/demo/latest
  zoerefine show runs/demo/latest/best/engine
"""


def main(argv: Sequence[str]) -> int:
    """Print where a run or a bundle came from, and its results."""
    parser = Parser(
        "zoerefine show",
        "Print a page about a run: state, commit, config, machine, data, results, and "
        "the command that runs it again; of a study also its trials by state and the best one. Or "
        "about an engine bundle: the run it came from, what it needs, and how much it differs from "
        "the refiner. A run's folder engine/ stands for the bundle that was exported last.",
        EPILOG,
    )
    parser.add_argument(
        "path", type=as_path, metavar="RUN|BUNDLE", help="a run directory, or an engine bundle"
    )
    add_shared(parser, "--metric-pattern", "--json")
    args = parser.parse_args(argv)
    path = args.path
    if not path.exists():
        raise UserError(f"{path} does not exist: give a run directory, or an engine bundle's file")
    if path.is_dir() and path.name != ENGINE:
        run = RunDir(path.resolve())
        of_study = progress_of(run)
        if args.json:
            study = of_study and of_study.study_facts(run)
            print_json({"run": run_facts(run, args.metric_pattern), "study": study})
            return 0
        print(show_run(run, args.metric_pattern))
        if of_study:
            print("", *map(visible, of_study.study_lines(run)), sep="\n")
        if run.bundle.exists():
            print(f"\nits engine bundle:\n  zoerefine show {shlex.quote(str(run.bundle))}")
        return 0

    from zoerefine.depth.exporting.bundle.bundle import bundle_of
    from zoerefine.depth.exporting.show import bundle_facts, show_bundle

    if args.json:
        print_json({"bundle": bundle_facts(bundle_of(path))})
        return 0
    print(show_bundle(bundle_of(path)))
    return 0


def progress_of(run: RunDir) -> ModuleType | None:
    """What tells of a study's database; None where the run is no study."""
    if "study_id" not in run.read_json(run.provenance_file):  # its trials have its id, too
        return None
    from zoerefine.lab.runs import find

    if not find.is_study(run.path):
        return None
    from zoerefine.lab.search import progress  # imports Optuna

    return progress
