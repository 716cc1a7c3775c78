"""What a launched trial of a study costs beside its script, and what torch's import would cost."""

import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common.machine import of_installed_commands
from common.report import Row, row

from zoerefine.base.run_dir import RunDir

CHECKOUT = Path(__file__).resolve().parents[2]
WORKERS, OVER_SCRIPT_S = 2, 0.3
SCRIPT = """
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--config")
text = open(parser.parse_args().config).read()
time.sleep(1)
print(f"loss={float(text.partition(':')[2])}")
"""
IMPORTS = {"nothing": "pass", "our training": "import zoerefine.depth.training.job"}


def trial_rows(folder: Path, quick: bool) -> list[Row]:
    """Rows of a study of a one-second script, of the script alone, and of imports."""
    count = 10 if quick else 50
    repository = make_repository(folder / "repository")
    cpu_s = [cpu_of_children()]
    bare_s = run_bare(repository, count)
    cpu_s.append(cpu_of_children())
    study_s, trials_s = run_study(folder, repository, count)
    cpu_s.append(cpu_of_children())
    added_cpu_s = (cpu_s[2] - cpu_s[1]) - (cpu_s[1] - cpu_s[0])
    rounds, cache = 3 if quick else 7, folder / "pycache"
    import_s = {name: import_time(code, rounds, cache) for name, code in IMPORTS.items()}
    return [
        row(f"{count} one-second scripts by hand, {WORKERS} at a time", bare_s, "s"),
        row(f"{count} launched trials of it, {WORKERS} workers, first start to last end",
            trials_s, "s"),
        row("a launched trial, time added to its script", (trials_s - bare_s) * WORKERS / count,
            "s", at_most=OVER_SCRIPT_S),
        row("the same in CPU time, with its share of the study's start and end",
            added_cpu_s / count, "s"),
        row("starting and ending the study", study_s - trials_s, "s"),
        row("our own training: what a process for each trial would add by its imports",
            import_s["our training"] - import_s["nothing"], "s"),
    ]  # fmt: skip


def make_repository(folder: Path) -> Path:
    """A repository with the script and its config."""
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(SCRIPT)
    (folder / "job.yaml").write_text("X: 0.5\n")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return folder


def run_bare(repository: Path, count: int) -> float:
    """Seconds of the scripts alone."""
    command = [sys.executable, "job.py", "--config", "job.yaml"]

    def run(_: int) -> None:
        subprocess.run(command, cwd=repository, check=True, capture_output=True)

    start = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(run, range(count)))
    return time.monotonic() - start


def run_study(folder: Path, repository: Path, count: int) -> tuple[float, float]:
    """Seconds of the command, and from the first trial's start to the last one's end."""
    command = [sys.executable, CHECKOUT / "platform" / "search.py", "--repo", repository]
    command += ["--commit", "HEAD", "--module", "job.py", "--config", "job.yaml"]
    command += ["--home", folder / "home", "--runs", folder / "runs", "--search", "X=0..1"]
    command += ["--metric", "loss", r"--metric-pattern=loss=(\S+)", "--trials", str(count)]
    command += ["--workers", str(WORKERS), "STUDY.PRUNER", "none"]
    start = time.monotonic()
    variables = of_installed_commands(folder / "pycache")
    words = [*map(str, command)]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, env=variables)
    wall_s = time.monotonic() - start
    trials = (folder / "runs" / "job" / "study" / "trials").iterdir()
    statuses = [RunDir(path).status() for path in trials]
    assert [status.state for status in statuses] == ["finished"] * count
    return wall_s, max(s.ended for s in statuses) - min(s.started for s in statuses)


def cpu_of_children() -> float:
    """CPU seconds of the processes that this one has started, and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def import_time(code: str, rounds: int, cache: Path) -> float:
    """Median seconds of a Python process that runs some code."""
    seconds, variables = [], of_installed_commands(cache)
    for _ in range(1 + rounds):
        start = time.monotonic()
        subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=True, env=variables)
        seconds.append(time.monotonic() - start)
    return statistics.median(seconds[1:])  # the first compiles the modules
