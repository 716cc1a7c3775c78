"""Training, packing, inference and engines on a busy machine and under a quota.

Every side is a process that does the same work all the time it is asked to: training (also with
OpenMP as torch comes), packing, inference from files to files, and single frames through each
engine. They take turns: on the machine as it is, beside two busy loops, and inside a control group
that may use half a core. Medians over rounds, and medians of the ratios within a round. The result
means something on an otherwise idle machine only: the report says what else was running.

--quick measures training and packing only.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from common.report import Row, options, report, row
from infer import CONFIG, last_line
from peers.busy_work import WORKS

from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.depth.data.synthetic import synthesize

PROGRAM = Path(__file__).parent / "peers" / "busy_work.py"
GROUPS = Path("/sys/fs/cgroup")
AS_TORCH_COMES = ("training", "torch")
LOOPS, QUOTA = 2, 0.5
OF_TORCH = 0.95
OF_IDLE = {"busy": 0.30, "quota": 0.20}
CONDITIONS = {
    "idle": "machine as it is",
    "busy": f"beside {LOOPS} busy loops",
    "quota": f"quota of {QUOTA:g} cores",
}
Side = tuple[str, str]  # kind of work, and whose setting for OpenMP: `ours` or `torch`
Speeds = dict[tuple[Side, str], list[float]]  # by side and condition, a value a round


def main() -> None:
    """Print the table, and write it where asked."""
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="busy-") as folder, quota_group() as group:
        root = Path(folder)
        synthesize(root / "world", 4, 1, 4, 0)
        kinds = ["training", "packing"] if args.quick else [*WORKS]
        if not args.quick:
            kinds = [kind for kind in kinds if kind not in left_out(root)]
        sides = [AS_TORCH_COMES, *((kind, "ours") for kind in kinds)]
        rows = measure(sides, root, group, *((2, 1.5) if args.quick else (5, 3.0)))
    report(rows, args)


def left_out(root: Path) -> list[str]:
    """Export a bundle for each engine; returns the works whose engine is not installed here."""
    (root / "bench.yaml").write_text(CONFIG.format(root=root))
    run = last_line("train", "--config", root / "bench.yaml")
    missing = []
    for work in (work for work in WORKS if work.startswith("engine ")):
        name = work.removeprefix("engine ")
        try:
            words = run, "--engine", name, "--precision", "fp32"
            bundle = Path(last_line("export", *words))
        except subprocess.CalledProcessError:
            missing.append(work)
            continue
        shutil.copy(bundle, root / f"{name}{bundle.suffix}")
    return missing


def measure(
    sides: list[Side], root: Path, group: Path | None, rounds: int, seconds: float
) -> list[Row]:
    """Work a second of each side under each condition."""
    free = {side: start(side, root) for side in sides}
    limited = {side: start(side, root, group) for side in sides} if group else {}
    speeds: Speeds = {}

    def turn(processes: "dict[Side, subprocess.Popen[str]]", condition: str, number: int) -> None:
        for side in sorted(processes, reverse=bool(number % 2)):
            speeds.setdefault((side, condition), []).append(ask(processes[side], seconds))

    for number in track(range(rounds), rounds, "measuring", "round"):
        turn(free, "idle", number)
        with busy_loops():
            turn(free, "busy", number)
        turn(limited, "quota", number)
    for process in (*free.values(), *limited.values()):
        process.kill()
        process.wait()
    return rows_of(speeds)


def rows_of(speeds: Speeds) -> list[Row]:
    """The rows of the report."""
    rows: list[Row] = []
    for (side, condition), values in sorted(speeds.items()):
        title = f"{title_of(side)}, {CONDITIONS[condition]}"
        rows.append(row(title, statistics.median(values), "images/s"))
    ours = "training", "ours"
    of_torch = ratio(speeds[ours, "idle"], speeds[AS_TORCH_COMES, "idle"])
    rows.append(row("training, machine as it is, ours of torch's", of_torch, "x", OF_TORCH))
    for (side, condition), values in sorted(speeds.items()):
        if condition != "idle":
            goal = OF_IDLE[condition] if side != AS_TORCH_COMES else None
            title = f"{title_of(side)}, {CONDITIONS[condition]}, of idle"
            rows.append(row(title, ratio(values, speeds[side, "idle"]), "x", goal))
    return rows


def title_of(side: Side) -> str:
    """A side's name in the report."""
    return f"{side[0]} as torch comes" if side == AS_TORCH_COMES else side[0]


def ratio(values: list[float], others: list[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(one / other for one, other in zip(values, others, strict=True))


def start(side: Side, root: Path, group: Path | None = None) -> "subprocess.Popen[str]":
    """A side's process, ready to work."""
    unset = ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "ZOEREFINE_OPENMP")
    process = subprocess.Popen(
        [sys.executable, PROGRAM, *side, root, str(group or "")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=open(root / "work.log", "a"),  # noqa: SIM115
        text=True,
        env={name: value for name, value in os.environ.items() if name not in unset},
    )
    assert process.stdout is not None
    if not any(line == "ready\n" for line in process.stdout):
        raise SystemExit(f"{PROGRAM} {side} has failed:\n{(root / 'work.log').read_text()}")
    return process


def ask(process: "subprocess.Popen[str]", seconds: float) -> float:
    """Let a side work for some seconds; returns its work a second."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    answers = (line for line in process.stdout if line.startswith("{"))
    return float(json.loads(next(answers))["per_s"])


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


def own_group() -> Path:
    """This process's control group for CPU time, of version 1."""
    lines = (line.split(":") for line in Path("/proc/self/cgroup").read_text().splitlines())
    inside = next((path for _, names, path in lines if "cpu" in names.split(",")), "")
    return GROUPS / "cpu" / inside.lstrip("/")


@contextmanager
def quota_group() -> Iterator[Path | None]:
    """A control group that may use QUOTA cores; None where none can be made."""
    name = f"zoerefine-busy-{os.getpid()}"
    made = None
    for parent, file, text in (
        (own_group(), "cpu.cfs_quota_us", f"{int(QUOTA * 100_000)}"),
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
