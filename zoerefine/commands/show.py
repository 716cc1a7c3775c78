"""zoerefine show: a page about a run or an engine bundle."""

import shlex
from collections.abc import Sequence
from typing import Any

from zoerefine.base.errors import UserError, visible
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
        if args.json:
            print_json({"run": run_facts(run, args.metric_pattern), "study": study_of(run)})
            return 0
        print(show_run(run, args.metric_pattern))
        print_study(run)
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


def is_study(run: RunDir) -> bool:
    """Whether a run is a study; its trials have its id, too."""
    if "study_id" not in run.read_json(run.provenance_file):
        return False
    from zoerefine.lab.runs import find

    return find.is_study(run.path)


def study_of(run: RunDir) -> dict[str, Any] | None:
    """What a study's database says, for programs; None where the run is no study."""
    if not is_study(run):
        return None
    from zoerefine.lab.search.progress import study_facts  # imports Optuna

    return study_facts(run)


def print_study(run: RunDir) -> None:
    """What a study's database says, where the run is one."""
    if not is_study(run):
        return
    from zoerefine.lab.search.progress import study_lines  # imports Optuna

    print("", *map(visible, study_lines(run)), sep="\n")
