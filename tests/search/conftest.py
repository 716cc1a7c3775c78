"""Studies for tests: in this process, or as the command."""

import os
import shutil
import subprocess
from pathlib import Path

import optuna
import pytest

from tests.conftest import CHECKOUT
from zoerefine.config import load_config, save_config
from zoerefine.run_dir import RunDir
from zoerefine.search.enqueue import enqueue
from zoerefine.search.storage import open_storage, storage_url
from zoerefine.search.study import Study, counted
from zoerefine.search.trial_worker import work
from zoerefine.train.job import prepare, record_provenance


@pytest.fixture
def searched(tiny, tmp_path):
    """Run a study here, with one worker: searched("{TRAIN: ...}", "STUDY.TRIALS", 2) -> Study."""

    def search(space, *words, enqueued=()):
        cfg = load_config(tiny, ["SEARCH", space, "TRAIN.EPOCHS", "1", *map(str, words)])
        run = RunDir(tmp_path / "study")
        study = Study(cfg, run)
        save_config(cfg, run.config_file)
        record_provenance(run, cfg, prepare(cfg)[0])
        enqueue(study, enqueued)
        work(run, "here")
        return study

    return search


@pytest.fixture
def slow(tiny):
    """A search whose trials take a second or two each."""
    tiny.write_text(
        tiny.read_text()
        + "STUDY: {TRIALS: 3, HEARTBEAT_S: 1}\n"
        + "SEARCH: {TRAIN: {LR: {low: 0.001, high: 0.01}}}\n"
    )
    return ["--config", tiny, "TRAIN.EPOCHS", "24", "TRAIN.CHECKPOINT_S", "0.0"]


GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@t")


@pytest.fixture
def tree(tmp_path):
    """A repository with this tree as it stands, committed."""
    folder = tmp_path / "tree"
    subprocess.run([*GIT, "clone", "-q", CHECKOUT, folder], check=True)
    for part in ("zoerefine", "platform"):
        shutil.copytree(CHECKOUT / part, folder / part, dirs_exist_ok=True)
    commit(folder)
    return folder


def commit(folder):
    """Commit all there is, or nothing."""
    subprocess.run([*GIT, "-C", folder, "add", "-A"], check=True)
    words = ("commit", "-q", "--allow-empty", "-m", "next")
    subprocess.run([*GIT, "-C", folder, *words], check=True)


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


class Made:
    """The study that the command has made in the test's folder, from whatever commit."""

    def __init__(self, tmp_path):
        self.run = RunDir(tmp_path / "runs" / "tiny" / "study")
        cfg = load_config(self.run.config_file)
        storage = open_storage(storage_url(cfg.STUDY.STORAGE, self.run.path), 60)
        self.optuna = optuna.load_study(study_name="tiny", storage=storage)

    def trials(self):
        return counted(self.optuna.get_trials())


def check_whole(tmp_path, trials=3):
    """Every trial once, each with a finished run of its own."""
    study = Made(tmp_path)
    found = study.trials()
    assert [t.state.name for t in found if t.state.name != "PRUNED"].count("COMPLETE") >= 1
    assert all(t.state.name in ("COMPLETE", "PRUNED") for t in found)
    assert len(found) == trials
    runs = [t.user_attrs["run"] for t in found]
    assert len(set(runs)) == trials
    for trial in found:
        run = RunDir(study.run.path / trial.user_attrs["run"])
        assert run.status().state == "finished"
        steps = [row["step"] for row in run.metrics() if row["phase"] == "train"]
        assert steps == sorted(set(steps))
        if trial.state.name == "COMPLETE":
            value = run.read_json(run.results_file)["val"]["refined"]["abs_rel"]
            assert trial.value == value
    return study
