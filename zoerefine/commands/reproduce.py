"""zoerefine reproduce: run a recorded job again and compare the results."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.messages import counted, visible
from zoerefine.base.run_dir import RunDir
from zoerefine.commands.options import Parser, add_shared, as_path, print_json, text_beside_json
from zoerefine.commands.show import progress_of
from zoerefine.lab.launch.git.mirror import mirrors_in_use
from zoerefine.lab.launch.home import home_folder
from zoerefine.lab.launch.launcher import start
from zoerefine.lab.launch.record.comparison import (
    DIFFERS,
    IGNORED,
    MISMATCH,
    SAME,
    SPEED,
    TOLERANCE,
    Comparison,
    check_ignored,
    compare_results,
    matching_files,
)
from zoerefine.lab.launch.record.reproduce import (
    check_commit,
    check_data,
    check_machine,
    check_run,
    next_run_dir,
    recorded_plan,
    recorded_variables,
)

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


@dataclass(frozen=True)
class Outcome:
    """What was found.

    Attributes:
        verdict: "reproduced" or "not reproduced"; "not reproducible" where the record is not what
            it was; "reproducible" where it is and nothing was run.
        message: the last line.
        tolerance: the relative difference that metrics may have; 0: bit-exact.
        again: the repetition.
    """

    verdict: str
    message: str
    code: int
    tolerance: float
    facts: Sequence[Comparison]
    results: Sequence[Comparison] = ()
    again: RunDir | None = None

    def document(self, run: RunDir) -> dict[str, Any]:
        """For --json."""
        return {
            "run": str(run.path),
            "verdict": self.verdict,
            "message": self.message,
            "tolerance": self.tolerance,
            "again": str(self.again.path) if self.again else None,
            "facts": [vars(one) for one in self.facts],
            "results": [vars(one) for one in self.results],
        }


def main(argv: Sequence[str]) -> int:
    """Run a recorded job again; 0 only if the results are the same."""
    parser = Parser(
        "zoerefine reproduce",
        "Run a recorded job again from its commit, and compare weights and metrics. On "
        "the same machine with the same versions they must be bit-exact; otherwise metrics may "
        "differ within a tolerance. Before it runs, it lists what differs from the record.",
        EPILOG,
    )
    add = parser.add_argument
    add("run", type=as_path, metavar="RUN", help="the directory of a run that `zoerefine run` made")
    add("--repo", default="", metavar="URL", help="where the repository is now, if it has moved")
    add("--home", type=as_path, metavar="DIR",
        help="where mirrors, workspaces and environments are kept (default: $ZOEREFINE_HOME, or "
        "~/.cache/zoerefine)")  # fmt: skip
    add("--tolerance", type=float, default=TOLERANCE, metavar="X",
        help="allowed relative difference of a metric, where machine or versions differ from the "
        f"record (default: {TOLERANCE})")  # fmt: skip
    add("--compare", action="append", default=[], metavar="PATTERN",
        help="also compare the files of this name that the job left in its workspace, e.g. "
        "'*.pt'; may be given several times")  # fmt: skip
    add("--ignore", action="append", default=[], metavar="GLOB",
        help="a metric that does not count, e.g. 'charts/*'; may be given several times; times and "
        "speeds never count")  # fmt: skip
    add("--check", action="store_true", help="list what differs from the record, and run nothing")
    add("--fresh", action="store_true",
        help="run the job once more, even if it was reproduced before")  # fmt: skip
    add_shared(parser, "--json", "--quiet")
    args = parser.parse_args(argv)
    if not 0 <= args.tolerance <= 1:
        raise UserError(f"--tolerance must be from 0 to 1, got {args.tolerance:g}")
    args.home = home_folder(args.home)
    run = RunDir(args.run.resolve())
    with mirrors_in_use(args.home), text_beside_json(args.json):
        outcome = reproduce(run, args)
        print(outcome.message)
    if args.json:
        print_json(outcome.document(run))
    return outcome.code


def reproduce(run: RunDir, args: argparse.Namespace) -> Outcome:
    """Check the record, run the job again, compare."""
    check_ignored(run, args.ignore)
    matching_files(run, args.compare)  # a wrong pattern is refused before the job runs
    if of_study := progress_of(run):
        print(*map(visible, of_study.study_lines(run)), sep="\n")
    plan = recorded_plan(run, args.home, args.repo)

    checks = [*check_run(run, plan), *check_commit(run, plan), *check_machine(run)]
    of_data = list(check_data(run, lambda: data_digests(run)))
    checks += of_data
    variables = recorded_variables(run)
    checks += [Comparison(name, value, value, SAME) for name, value in variables.items()]
    exact = not any(check.verdict == DIFFERS and check.what != "commit" for check in checks)
    tolerance = 0.0 if exact else args.tolerance
    different = [check for check in checks if check.verdict != SAME]
    data = ", data" if of_data else "; the data that a script reads are not recorded"
    print(f"{len(checks) - len(different)} of {len(checks)} facts are as recorded "
          f"(commit, config, the run's files, packages, machine, variables{data})")  # fmt: skip
    if variables:
        print("set again as recorded: " + ", ".join("=".join(one) for one in variables.items()))
    print_comparisons("changed since the run", different)
    ended = unfinished(run)
    mismatches = [check for check in checks if check.verdict == MISMATCH]
    if mismatches:
        message = f"NOT REPRODUCIBLE: {mismatches[0].what} is not what was recorded"
        return Outcome("not reproducible", message, 2, tolerance, checks)
    if args.check:
        how = "must be bit-exact" if exact else f"may differ by {args.tolerance:g}"
        message = f"the run can be reproduced; its results {how}{ended}"
        return Outcome("reproducible", message, 0, tolerance, checks)
    again = next_run_dir(run, args.fresh)
    if again.status().state == "finished":
        print("compared with the repetition of before; --fresh runs the job once more")
    code = start(plan, again, recorded=variables)
    if code and again.status().reason.startswith("stopped by "):  # this command was, too
        message = "stopped: nothing is known; the same command starts the job again"
        return Outcome("stopped", message + ended, code, tolerance, checks, (), again)
    if code:
        message = f"NOT REPRODUCED: the job ended with exit code {code}, see {again.log_file}"
        return Outcome("not reproduced", message + ended, 1, tolerance, checks, (), again)
    results = compare_results(run, again, tolerance, args.compare, args.ignore)
    message = verdict(results, again, tolerance) + ended
    same = message.startswith("REPRODUCED")
    word = "reproduced" if same else "not reproduced"
    return Outcome(word, message, 0 if same else 1, tolerance, checks, results, again)


def unfinished(run: RunDir) -> str:
    """What the last line adds about a recorded run that has not finished; empty otherwise."""
    state, reason = run.status().state, run.status().reason
    if state == "finished":
        return ""
    return f"; the recorded run itself is {state}{f' ({reason})' if reason else ''}"


def data_digests(run: RunDir) -> Mapping[str, str]:
    """The digest of the data that the run's config names, as they are now."""
    from zoerefine.base.config import load_config
    from zoerefine.depth.training.job import prepare

    cache, _ = prepare(load_config(run.config_file))
    return {"dataset_digest": cache.dataset_digest}


def verdict(found: Sequence[Comparison], again: RunDir, tolerance: float) -> str:
    """Print the comparison; returns the verdict's line."""
    left_out = [one for one in found if one.verdict in (SPEED, IGNORED)]
    comparisons = [one for one in found if one not in left_out]
    if not comparisons:
        others = uncounted(left_out) or ", neither run has metrics or files"
        return f"NOT REPRODUCED: nothing to compare{others}"
    different = [one for one in comparisons if one.verdict != SAME]
    shown = different or comparisons
    print_comparisons("recorded and repeated results", shown[:MAX_ROWS])
    if len(shown) > MAX_ROWS:
        print(f"... and {len(shown) - MAX_ROWS} more")
    print_comparisons("not counted", left_out[:MAX_ROWS])
    mismatches = sum(one.verdict == MISMATCH for one in comparisons)
    total, apart = len(comparisons), uncounted(left_out)
    if mismatches:
        limit = f" by more than {tolerance:g}" if tolerance else ""
        return f"NOT REPRODUCED: {mismatches} of {total} values differ{limit}{apart}: {again.path}"
    measure = f"the same within {tolerance:g}" if tolerance else "exactly the same"
    return f"REPRODUCED: {total} values are {measure}{apart}: {again.path}"


def uncounted(left_out: Sequence[Comparison]) -> str:
    """How many values of each kind the verdict leaves out; empty for none."""
    speeds = sum(one.verdict == SPEED for one in left_out)
    ignored = len(left_out) - speeds
    parts = [counted(speeds, "speed")] if speeds else []
    parts += [f"{ignored} ignored"] if ignored else []
    return f" (not counted: {', '.join(parts)})" if parts else ""


def print_comparisons(title: str, comparisons: Sequence[Comparison]) -> None:
    """A table of comparisons; nothing where there are none."""
    from rich.console import Console
    from rich.table import Table

    if not comparisons:
        return
    colours = {SAME: "green", DIFFERS: "yellow", MISMATCH: "red", SPEED: "dim", IGNORED: "dim"}
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
