"""Studies for tests: in this process, or as the command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoerefine.config import load_config, save_config
from zoerefine.run_dir import RunDir
from zoerefine.search.enqueue import enqueue
from zoerefine.search.study import Study
from zoerefine.search.worker import work
from zoerefine.train.job import prepare, record_provenance

SCRIPT = Path(__file__).resolve().parents[2] / "platform" / "search.py"


@pytest.fixture
def searched(tiny, tmp_path):
    """Run a study here, with one worker: searched("{TRAIN: ...}", "STUDY.TRIALS", 2) -> Study."""

    def search(space, *words, enqueued=()):
        tiny.write_text(f"{tiny.read_text()}\nSEARCH: {space}\n")
        cfg = load_config(tiny, ["TRAIN.EPOCHS", "1", *map(str, words)])
        run = RunDir(tmp_path / "study")
        study = Study(cfg, run)
        save_config(cfg, run.config_file)
        record_provenance(run, cfg, prepare(cfg)[0])
        enqueue(study, enqueued)
        work(run, "here")
        return study

    return search


@pytest.fixture
def start_search(tmp_path):
    """Start the command in the test's folder: start_search("--config", ...) -> process."""
    started = []

    def start(*words):
        process = subprocess.Popen(
            [sys.executable, SCRIPT, *map(str, words)], cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def children(pid):
    """Processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    """Whether a process is there, and no zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
