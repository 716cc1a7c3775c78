"""zoerefine reproduce: a run -> the same run again, compared."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from zoerefine.launch.launcher import default_home, start
from zoerefine.launch.repository import using
from zoerefine.launch.reproduce import (
    BROKEN,
    DIFFERS,
    SAME,
    TOLERANCE,
    Comparison,
    check_commit,
    check_data,
    check_machine,
    check_run,
    compare_results,
    next_place,
    recorded_plan,
)
from zoerefine.launch.show import open_run
from zoerefine.run_dir import RunDir

SHOWN = 20


def main(argv: Sequence[str]) -> int:
    """Run a recorded job again; 0 only where it came to the same."""
    parser = argparse.ArgumentParser(
        prog="reproduce",
        description="Run a recorded job again from its commit, and compare weights and metrics: "
        "bit by bit on the same machine and versions, within a tolerance elsewhere. What differs "
        "from the record is said before any time is spent.",
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="a launched run's directory")
    add("--repo", default="", metavar="URL", help="where the repository is now, if it has moved")
    add("--home", type=Path, metavar="DIR", help="where mirrors and workspaces go")
    add("--tolerance", type=float, default=TOLERANCE, metavar="X",
        help=f"relative, where machine or versions differ ({TOLERANCE})")  # fmt: skip
    add("--check", action="store_true", help="only say what differs; run nothing")
    add("--fresh", action="store_true", help="run once more, though it was reproduced before")
    args = parser.parse_args(argv)
    args.home = (args.home or default_home()).expanduser().resolve()
    with using(args.home):
        return reproduce(open_run(args.run), args)


def reproduce(run: RunDir, args: argparse.Namespace) -> int:
    """Comparison, run again, compare; 0 only where it came to the same."""
    plan = recorded_plan(run, args.home, args.repo)

    checks = [*check_run(run, plan), *check_commit(run, plan), *check_machine(run)]
    checks += check_data(run, lambda: data_digests(run))
    exact = not any(check.verdict == DIFFERS and check.what != "commit" for check in checks)
    different = [check for check in checks if check.verdict != SAME]
    print(f"{len(checks) - len(different)} of {len(checks)} records are as they were "
          "(commit, config, the run's files, packages, machine, data)")  # fmt: skip
    print_checks("before running", different)
    broken = [check for check in checks if check.verdict == BROKEN]
    if broken:
        print(f"NOT REPRODUCIBLE: {broken[0].what} is not what was recorded")
        return 1
    if args.check:
        print("nothing stands against reproducing it" + ("" if exact else ", but see above"))
        return 0
    again = next_place(run, args.fresh)
    code = start(plan, again)
    if code:
        print(f"NOT REPRODUCED: the job ended with exit code {code}, see {again.log_file}")
        return 1
    return verdict(run, again, 0.0 if exact else args.tolerance)


def data_digests(run: RunDir) -> Mapping[str, str]:
    """The digests of the data that the run's configuration names, as they are now."""
    from zoerefine.config import load_config
    from zoerefine.train.job import prepare

    cache, _ = prepare(load_config(run.config_file))
    return {"dataset_digest": cache.dataset_digest}


def verdict(run: RunDir, again: RunDir, tolerance: float) -> int:
    """Print the comparison and the verdict; 0 where the run was reproduced."""
    checks = compare_results(run, again, tolerance)
    wrong = [check for check in checks if check.verdict != SAME]
    print_checks("recorded and again", (wrong or checks)[:SHOWN])
    if len(wrong or checks) > SHOWN:
        print(f"... and {len(wrong or checks) - SHOWN} more")
    bad = sum(check.verdict == BROKEN for check in checks)
    measure = f"within {tolerance:g}" if tolerance else "exactly"
    if not checks:
        print("NOT REPRODUCED: the job left nothing to compare")
        return 1
    if bad:
        print(f"NOT REPRODUCED: {bad} of {len(checks)} values differ, {measure}: {again.path}")
        return 1
    print(f"REPRODUCED: {len(checks)} values are {measure} the same: {again.path}")
    return 0


def print_checks(title: str, checks: Sequence[Comparison]) -> None:
    """A table of comparisons."""
    from rich.console import Console
    from rich.table import Table

    if not checks:
        return
    colours = {SAME: "green", DIFFERS: "yellow", BROKEN: "red"}
    table = Table(title=title, title_justify="left")
    for name in ("what", "recorded", "now", ""):
        table.add_column(name, overflow="fold", no_wrap=name == "")
    for check in checks:
        word = "WRONG" if check.verdict == BROKEN else check.verdict
        recorded, now = (shortened(text) for text in (check.recorded, check.now))
        table.add_row(check.what, recorded, now, f"[{colours[check.verdict]}]{word}[/]")
    Console().print(table)


def shortened(text: str) -> str:
    """A digest by its first digits; anything else as it is."""
    return text[:16] if len(text) in (40, 64) and " " not in text else text
