"""Training on a busy machine and under a quota, with our choice for OpenMP and as torch comes.

Both sides are processes that train the same network. They take turns: on the machine as it is,
beside two busy loops, and inside a control group that may use half a core. Medians over rounds,
and medians of the ratios within a round. The result means something on an otherwise idle machine
only: the first row says what else was running.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from common.report import Row, options, report, row

from zoerefine.progress import say, track

PROGRAM = Path(__file__).parent / "peers" / "training_steps.py"
GROUPS = Path("/sys/fs/cgroup")
SIDES = ("ours", "torch")
LOOPS, QUOTA = 2, 0.5
OF_TORCH, OF_IDLE_BUSY, OF_IDLE_QUOTA = 0.95, 0.30, 0.20
Speeds = dict[tuple[str, str], list[float]]  # by side and condition, a value a round


def main() -> None:
    """Print the table, and write it where asked."""
    args = options(__doc__).parse_args()
    with quota_group() as group:
        rows = measure(group, *((2, 2.0) if args.quick else (7, 4.0)))
    report(rows, args.json)


def measure(group: Path | None, rounds: int, seconds: float) -> list[Row]:
    """Steps a second of each side under each condition."""
    others = os.getloadavg()[0]
    free = {side: start(side) for side in SIDES}
    limited = {side: start(side, group) for side in SIDES} if group else {}
    speeds: Speeds = {}
    for number in track(range(rounds), rounds, "measuring", "round"):
        for side in sorted(SIDES, reverse=bool(number % 2)):
            speeds.setdefault((side, "idle"), []).append(ask(free[side], seconds))
        with busy_loops():
            for side in sorted(SIDES, reverse=bool(number % 2)):
                speeds.setdefault((side, "busy"), []).append(ask(free[side], seconds))
        for side, process in limited.items():
            speeds.setdefault((side, "quota"), []).append(ask(process, seconds))
    for process in (*free.values(), *limited.values()):
        process.kill()
        process.wait()
    return rows_of(speeds, others)


def rows_of(speeds: Speeds, others: float) -> list[Row]:
    """The rows of the report."""
    names = {
        "idle": "machine as it is",
        "busy": f"beside {LOOPS} busy loops",
        "quota": f"quota of {QUOTA:g} cores",
    }
    rows = [row("load average before the start", others, "")]
    for (side, condition), values in speeds.items():
        title = f"{names[condition]}, {'our choice' if side == 'ours' else 'as torch comes'}"
        rows.append(row(title, statistics.median(values), "steps/s"))
    goals = {"busy": OF_IDLE_BUSY, "quota": OF_IDLE_QUOTA}
    of_torch = ratio(speeds["ours", "idle"], speeds["torch", "idle"])
    rows.append(row("machine as it is, ours of torch's", of_torch, "x", OF_TORCH))
    for (side, condition), values in speeds.items():
        if condition != "idle":
            goal = goals[condition] if side == "ours" else None
            title = f"{names[condition]}, of idle, {'our choice' if goal else 'as torch comes'}"
            rows.append(row(title, ratio(values, speeds[side, "idle"]), "x", goal))
    return rows


def ratio(values: list[float], others: list[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(one / other for one, other in zip(values, others, strict=True))


def start(side: str, group: Path | None = None) -> "subprocess.Popen[str]":
    """A side's process, ready to train."""
    unset = ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "ZOEREFINE_OPENMP")
    process = subprocess.Popen(
        [sys.executable, PROGRAM, side, str(group or "")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in unset},
    )
    assert process.stdout is not None
    if not process.stdout.readline():
        raise SystemExit(f"{PROGRAM} {side} has failed")
    return process


def ask(process: "subprocess.Popen[str]", seconds: float) -> float:
    """Let a side train for some seconds; returns its steps a second."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline())["steps_per_s"])


@contextmanager
def busy_loops() -> Iterator[None]:
    """While entered, LOOPS processes compute without a pause."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range(LOOPS)]
    time.sleep(0.3)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def quota_group() -> Iterator[Path | None]:
    """A control group that may use QUOTA cores; None where none can be made."""
    name = f"zoerefine-busy-{os.getpid()}"
    made = None
    for parent, file, text in (
        (GROUPS / "cpu", "cpu.cfs_quota_us", f"{int(QUOTA * 100_000)}"),
        (GROUPS, "cpu.max", f"{int(QUOTA * 100_000)} 100000"),
    ):
        with suppress(OSError):
            (parent / name).mkdir()
            made = parent / name
            (made / file).write_text(text)
            break
    if made is None:
        say("left out: a quota, since control groups cannot be made here")
    try:
        yield made
    finally:
        if made:
            time.sleep(0.2)  # until its processes have left
            made.rmdir()


if __name__ == "__main__":
    main()
