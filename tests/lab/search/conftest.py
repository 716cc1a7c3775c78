"""Studies for tests: without training, trained in this process, or made by the command."""

import os
import shutil
from types import SimpleNamespace

import optuna
import pytest

from tests.conftest import CHECKOUT
from tests.lab.search.gate import GATE
from tests.processes import git
from tests.verb_server import read_migrations_once
from zoerefine.base.config import load_config
from zoerefine.base.run_dir import RunDir
from zoerefine.commands import search
from zoerefine.lab.search.space.checks import check_search_space
from zoerefine.lab.search.study.claims import TrialOutcome, claim_trial, complete
from zoerefine.lab.search.study.enqueue import enqueue, params_to_try
from zoerefine.lab.search.study.storage import open_storage, storage_url
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import trial_run, without_duplicates
from zoerefine.lab.search.worker import run_worker

read_migrations_once()
SPACE = "{TRAIN: {LR: {low: 0.001, high: 0.01}}}"
CHECKPOINTS = "runs/tiny/study/trials/*/checkpoints/step-*.pt"


@pytest.fixture
def open_study(tiny, tmp_path):
    """A study whose trials the test ends itself: open_study("{TRAIN: ...}", "STUDY.TRIALS", 2)."""
    from zoerefine.depth.study.trials import OwnTraining  # loads torch

    def make(space, *words, folder="study"):
        cfg = load_config(tiny, ["SEARCH", space, *map(str, words)])
        check_search_space(cfg)
        return Study(OwnTraining(cfg), RunDir(tmp_path / folder))

    return make


@pytest.fixture
def searched(open_study):
    """A study trained here by one worker: searched("{TRAIN: ...}", "STUDY.TRIALS", 2) -> Study."""

    def search(space, *words, enqueued=(), folder="study"):
        study = open_study(space, "TRAIN.EPOCHS", 1, *words, folder=folder)
        study.subject.save(study.run)
        enqueue(study, params_to_try(study.subject, enqueued))
        run_worker(study.run, "here")
        return study

    return search


@pytest.fixture
def gated(tiny, tmp_path, monkeypatch):
    """A search whose trials write a checkpoint after each of eight steps.

    A training waits after two steps until `gated.open()`.
    """
    tiny.write_text(
        tiny.read_text()
        + "STUDY: {TRIALS: 3, HEARTBEAT_S: 20}\n"
        + "SEARCH: {TRAIN: {LR: {low: 0.001, high: 0.01}}}\n"
    )
    paths = [str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    gate = tmp_path / "gate"
    monkeypatch.setenv(GATE, str(gate))
    words = ["TRAIN.EPOCHS", "4", "TRAIN.CHECKPOINT_S", "0.0", "TRAIN.PICTURES", "0"]
    network = ("MODEL.NAME", "tests.lab.search.gated_network:Gated")
    return SimpleNamespace(words=["--config", tiny, *words, *network], open=gate.touch)


@pytest.fixture
def tree(tmp_path):
    """A repository with this tree as it stands, committed."""
    folder = tmp_path / "tree"
    git(tmp_path, "clone", "-q", CHECKOUT, folder)
    for part in ("zoerefine", "platform"):
        shutil.copytree(CHECKOUT / part, folder / part, dirs_exist_ok=True)
    commit(folder)
    return folder


def commit(folder):
    """Commit all changes, or nothing."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "next")


def training_runs(tmp_path):
    """Runs of trials that have written a checkpoint, the one that started last first."""
    folders = {path.parent.parent for path in tmp_path.glob(CHECKPOINTS)}
    return sorted(map(RunDir, folders), key=lambda run: run.status().started, reverse=True)


def end(study, **figures):
    """Complete the next trial with these figures: end(study, abs_rel=0.5)."""
    complete(study, claim_trial(study, "a"), TrialOutcome(figures))


def configs_of_rates(folder, *rates):
    """Configs for --enqueue, one for each learning rate; their paths."""
    paths = [folder / f"{rate}.yaml" for rate in rates]
    for path, rate in zip(paths, rates, strict=True):
        path.write_text(f"TRAIN: {{LR: {rate}}}\n")
    return paths


class StudyOnDisk:
    """The study that the command made in the test's folder, from whatever commit."""

    def __init__(self, tmp_path):
        self.run = RunDir(tmp_path / "runs" / "tiny" / "study")
        cfg = load_config(self.run.config_file)
        storage = open_storage(storage_url(cfg.STUDY.STORAGE, self.run.path), 60)
        self.optuna = optuna.load_study(study_name="tiny", storage=storage)

    def trials(self):
        return without_duplicates(self.optuna.get_trials())

    def continued(self):
        """Trials that a worker left and another continued."""
        return [trial for trial in self.trials() if trial.user_attrs.get("lost_claims")]


def check_finished_study(tmp_path, trials=3):
    """Every trial ran once, in a finished run that has the trial's number and value."""
    study = StudyOnDisk(tmp_path)
    found = study.trials()
    states = [trial.state.name for trial in found]
    assert set(states) <= {"COMPLETE", "PRUNED"}
    assert "COMPLETE" in states
    assert [trial.number for trial in found] == list(range(trials))
    folders = sorted(path.name for path in (study.run.path / "trials").iterdir())
    assert folders == [f"{number:04d}" for number in range(trials)]
    for trial in found:
        run = trial_run(study.run, trial.number)
        assert run.status().state == "finished"
        steps = [row["step"] for row in run.metrics() if row["phase"] == "train"]
        assert steps == sorted(set(steps))
        if trial.state.name == "COMPLETE":
            value = run.read_json(run.results_file)["val"]["refined"]["abs_rel"]
            assert trial.value == value
    return study


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """The user's folder, and the folder of mirrors and workspaces."""
    monkeypatch.setenv("ZOEREFINE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def open_script_study(tmp_path):
    """A study of a script, as its driver makes it: open_script_study(repository, *words)."""

    def make(repository, *words, space="0.001..0.1 log", **values):
        settings = repository.set(**values)
        words = search_words(repository, *words, *settings, space=space)
        args = search.parser().parse_intermixed_args(words)
        args.cwd = "workspace"
        subject = search.make_subject(args, (), search.study_words(args))
        study = Study(subject, RunDir(subject.folder))
        subject.save(study.run)
        enqueue(study, params_to_try(subject, args.enqueue))
        return study

    return make


def search_words(repository, *words, space="0.001..0.1 log"):
    """The words of a search of the script's learning rate."""
    objective = ["--metric", "val_acc", "--maximize"]
    searched = ["--search", f"{repository.keys['lr']}={space}"] if space else []
    return [*repository.job(), *objective, *searched, *map(str, words)]


def study_on_disk(tmp_path):
    """The only study that was made: its run, and its trials that count."""
    (folder,) = tmp_path.glob("runs/*/study")
    name = folder.parent.name
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{folder / 'study.db'}")
    return RunDir(folder), without_duplicates(study.trials)
