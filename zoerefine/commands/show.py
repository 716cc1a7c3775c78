"""zoerefine show: a page about a run or an engine bundle."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from zoerefine.commands.help_format import HelpFormat
from zoerefine.errors import UserError
from zoerefine.launch.show import show_run
from zoerefine.listing.run_users import is_study
from zoerefine.run_dir import ENGINE, RunDir
from zoerefine.visible_text import visible

EPILOG = """\
examples, after `make demo`:
  zoerefine show runs/demo/latest
  zoerefine show runs/demo/latest/best/engine
"""


def main(argv: Sequence[str]) -> int:
    """Print where a run or a bundle came from, and its results."""
    parser = argparse.ArgumentParser(
        prog="zoerefine show",
        description="Print a page about a run: state, commit, config, machine, data, results, and "
        "the command that runs it again; of a study also its trials by state and the best one. Or "
        "about an engine bundle: the run it came from, what it needs, and how much it differs from "
        "the refiner. A run's folder engine/ stands for the bundle that was exported last.",
        epilog=EPILOG,
        formatter_class=HelpFormat,
    )
    parser.add_argument(
        "path", type=Path, metavar="RUN|BUNDLE", help="a run directory, or an engine bundle"
    )
    path = parser.parse_args(argv).path
    if not path.exists():
        raise UserError(f"{path} does not exist: give a run directory, or an engine bundle's file")
    if path.is_dir() and path.name != ENGINE:
        run = RunDir(path.resolve())
        print(show_run(run))
        print_study(run)
        if run.bundle.exists():
            print(f"\nits engine bundle:\n  zoerefine show {shlex.quote(str(run.bundle))}")
        return 0

    from zoerefine.exporting.bundle import bundle_of
    from zoerefine.exporting.show import show_bundle

    print(show_bundle(bundle_of(path)))
    return 0


def print_study(run: RunDir) -> None:
    """What a study's database says, where the run is one; its trials have its id, too."""
    if "study_id" not in run.read_json(run.provenance_file) or not is_study(str(run.path)):
        return
    from zoerefine.searching.study_page import study_lines  # imports Optuna

    print("", *map(visible, study_lines(run)), sep="\n")
