"""zoerefine reproduce: run a recorded job again and compare the results."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from zoerefine.commands.help_format import HelpFormat
from zoerefine.commands.quiet_option import add_quiet_option
from zoerefine.launch.comparison import (
    DIFFERS,
    MISMATCH,
    SAME,
    TOLERANCE,
    Comparison,
    compare_results,
    matching_files,
)
from zoerefine.launch.home import home_folder
from zoerefine.launch.launcher import start
from zoerefine.launch.mirror import mirrors_in_use
from zoerefine.launch.reproduce import (
    check_commit,
    check_data,
    check_machine,
    check_run,
    next_run_dir,
    recorded_plan,
)
from zoerefine.run_dir import RunDir

MAX_ROWS = 20
EPILOG = """\
examples, after `make demo`:
  zoerefine reproduce runs/demo/latest
  zoerefine reproduce runs/demo/latest --check

of a script of your own that leaves files in its workspace:
  zoerefine reproduce runs/mnist/latest --compare '*.pt'

exit code: 0: reproduced; 1: it ran again and was not reproduced; 2: it cannot be run again, the
message says why
"""


def main(argv: Sequence[str]) -> int:
    """Run a recorded job again; 0 only if the results are the same."""
    parser = argparse.ArgumentParser(
        prog="zoerefine reproduce",
        description="Run a recorded job again from its commit, and compare weights and metrics. On "
        "the same machine with the same versions they must be bit-exact; otherwise metrics may "
        "differ within a tolerance. Before it runs, it lists what differs from the record.",
        epilog=EPILOG,
        formatter_class=HelpFormat,
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the directory of a run that `zoerefine run` made")
    add("--repo", default="", metavar="URL", help="where the repository is now, if it has moved")
    add("--home", type=Path, metavar="DIR",
        help="where mirrors, workspaces and environments are kept (default: $ZOEREFINE_HOME, or "
        "~/.cache/zoerefine)")  # fmt: skip
    add("--tolerance", type=float, default=TOLERANCE, metavar="X",
        help="allowed relative difference of a metric, where machine or versions differ from the "
        f"record (default: {TOLERANCE})")  # fmt: skip
    add("--compare", action="append", default=[], metavar="PATTERN",
        help="also compare the files of this name that the job left in its workspace, e.g. "
        "'*.pt'; may be given several times")  # fmt: skip
    add("--check", action="store_true", help="list what differs from the record, and run nothing")
    add("--fresh", action="store_true",
        help="run the job once more, even if it was reproduced before")  # fmt: skip
    add_quiet_option(parser)
    args = parser.parse_args(argv)
    args.home = home_folder(args.home)
    with mirrors_in_use(args.home):
        return reproduce(RunDir(args.run.resolve()), args)


def reproduce(run: RunDir, args: argparse.Namespace) -> int:
    """Check the record, run the job again, compare; 0 only if the results are the same."""
    matching_files(run, args.compare)  # a wrong pattern is refused before the job runs
    plan = recorded_plan(run, args.home, args.repo)

    checks = [*check_run(run, plan), *check_commit(run, plan), *check_machine(run)]
    checks += check_data(run, lambda: data_digests(run))
    exact = not any(check.verdict == DIFFERS and check.what != "commit" for check in checks)
    different = [check for check in checks if check.verdict != SAME]
    print(f"{len(checks) - len(different)} of {len(checks)} facts are as recorded "
          "(commit, config, the run's files, packages, machine, data)")  # fmt: skip
    print_comparisons("changed since the run", different)
    mismatches = [check for check in checks if check.verdict == MISMATCH]
    if mismatches:
        print(f"NOT REPRODUCIBLE: {mismatches[0].what} is not what was recorded")
        return 2
    if args.check:
        how = "must be bit-exact" if exact else f"may differ by {args.tolerance:g}"
        print(f"the run can be reproduced; its results {how}")
        return 0
    again = next_run_dir(run, args.fresh)
    code = start(plan, again)
    if code:
        print(f"NOT REPRODUCED: the job ended with exit code {code}, see {again.log_file}")
        return 1
    tolerance = 0.0 if exact else args.tolerance
    comparisons = compare_results(run, again, tolerance, args.compare)
    return verdict(comparisons, again, tolerance)


def data_digests(run: RunDir) -> Mapping[str, str]:
    """The digest of the data that the run's config names, as they are now."""
    from zoerefine.config import load_config
    from zoerefine.training.job import prepare

    cache, _ = prepare(load_config(run.config_file))
    return {"dataset_digest": cache.dataset_digest}


def verdict(comparisons: Sequence[Comparison], again: RunDir, tolerance: float) -> int:
    """Print the comparison and the verdict; 0 if the run was reproduced."""
    if not comparisons:
        print("NOT REPRODUCED: the job left no results to compare")
        return 1
    different = [one for one in comparisons if one.verdict != SAME]
    shown = different or comparisons
    print_comparisons("recorded and repeated results", shown[:MAX_ROWS])
    if len(shown) > MAX_ROWS:
        print(f"... and {len(shown) - MAX_ROWS} more")
    mismatches = sum(one.verdict == MISMATCH for one in comparisons)
    total = len(comparisons)
    if mismatches:
        limit = f" by more than {tolerance:g}" if tolerance else ""
        print(f"NOT REPRODUCED: {mismatches} of {total} values differ{limit}: {again.path}")
        return 1
    measure = f"the same within {tolerance:g}" if tolerance else "exactly the same"
    print(f"REPRODUCED: {total} values are {measure}: {again.path}")
    return 0


def print_comparisons(title: str, comparisons: Sequence[Comparison]) -> None:
    """A table of comparisons; nothing where there are none."""
    from rich.console import Console
    from rich.table import Table

    if not comparisons:
        return
    colours = {SAME: "green", DIFFERS: "yellow", MISMATCH: "red"}
    table = Table(title=title, title_justify="left")
    for name in ("what", "recorded", "now", ""):
        table.add_column(name, overflow="fold", no_wrap=name == "")
    for one in comparisons:
        recorded, now = (shortened(text) for text in (one.recorded, one.now))
        table.add_row(one.what, recorded, now, f"[{colours[one.verdict]}]{one.verdict}[/]")
    Console().print(table)


def shortened(text: str) -> str:
    """The first digits of a digest; other texts unchanged."""
    return text[:16] if len(text) in (40, 64) and " " not in text else text
