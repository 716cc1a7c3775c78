"""The sides of a loader benchmark: programs in peers/, each a process with packages of its own."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoerefine.base.files.atomic import digest_json
from zoerefine.base.messages import say
from zoerefine.lab.launch.home import home_folder

PEERS = Path(__file__).parents[1] / "peers"
SOURCES = {"naive": "pictures", "dali_": "pictures", "decoding": "world"}  # of programs that decode


@dataclass(frozen=True)
class Side:
    """A way to load.

    Attributes:
        program, words: the file in peers/ and its arguments.
        quick: whether it takes part with --quick.
        share: of the packed samples that it loads; below 1 for sides that would take minutes.
        packages: to install for it.
    """

    name: str
    program: str
    words: tuple[str, ...]
    quick: bool = False
    share: float = 1.0
    packages: tuple[str, ...] = ()


def start(side: Side, root: Path, samples: int) -> "subprocess.Popen[str] | None":
    """A side's process after its first epoch; None for a side that does not run here."""
    python = environment(side.packages)
    if python is None:
        return None
    source = root / SOURCES.get(side.program, "cache")
    words = [str(source), str(int(samples * side.share)), *side.words]
    if side.packages:
        words.append(str(root / side.program))
    log = root / f"{side.program}.log"
    process = subprocess.Popen(
        [python, PEERS / f"{side.program}.py", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
    )
    if ask(process):
        return process
    last = (log.read_text().strip().splitlines() or ["no output"])[-1]
    say(f"left out: {side.name} does not run here ({last[:200]})")
    return None


def ask(process: "subprocess.Popen[str]") -> dict[str, float]:
    """Let a side run an epoch and return its answer; empty for a side that has died."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("epoch\n")
    process.stdin.flush()
    answers = (
        line for line in process.stdout if line.startswith("{")
    )  # packages print other lines
    answer: dict[str, float] = json.loads(next(answers, "{}"))
    return answer


def environment(packages: tuple[str, ...]) -> str | None:
    """A Python with some packages besides those of this project; None if they do not install.

    The environment is kept for the next time.
    """
    if not packages:
        return sys.executable
    folder = home_folder() / "benchmarks" / f"{packages[0]}-{digest_json(packages)[:8]}"
    python = folder / "bin" / "python"
    if (folder / ".ready").exists():
        return str(python)
    say(f"installing {packages[0]} into {folder}, once")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    ours = Path(np.__file__).parents[1]
    (next(folder.glob("lib/*/site-packages")) / "ours.pth").write_text(f"{ours}\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for words in (packages[1:], ["--no-deps", "--no-build-isolation", packages[0]]):
        done = subprocess.run([*pip, *words], capture_output=True, text=True) if words else None
        if done and done.returncode:
            lines = [line for line in done.stderr.splitlines() if "rror" in line]
            say(f"left out: {packages[0]} cannot be installed ({(lines or ['?'])[0][:200]})")
            return None
    (folder / ".ready").touch()
    return str(python)
