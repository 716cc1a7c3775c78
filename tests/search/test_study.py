"""Studies: trials are runs, the best is retrained, and a killed study loses nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest

from zoerefine.config import load_config
from zoerefine.run_dir import RunDir

SCRIPT = Path(__file__).resolve().parents[2] / "platform" / "search.py"


def trials_of(run):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.load_study(study_name=None, storage=f"sqlite:///{run.path / 'study.db'}").trials


def test_trials_are_runs_with_provenance_and_the_best_is_trained(study):
    assert study.status().state == "finished"
    trials = trials_of(study)
    assert len(trials) == 3
    for trial in trials:
        run = RunDir(study.path / "trials" / f"{trial.number:04d}")
        assert run.status().state == "finished"
        results = run.read_json(run.results_file)
        assert results["val"]["refined"]["abs_rel"] == trial.value
        assert "test" not in results
        assert trial.params["TRAIN.LR"] == load_config(run.config_file).TRAIN.LR
        assert run.read_json(run.provenance_file)["commit"] is not None
    best = RunDir(study.path / "best")
    assert set(best.read_json(best.results_file)) >= {"test", "test_scenes"}
    cfg = load_config(study.path / "best.yaml")
    winner = min(trials, key=lambda trial: trial.value)
    assert winner.params["TRAIN.LR"] == cfg.TRAIN.LR
    assert cfg.TRAIN.EPOCHS == 2
    assert load_config(best.config_file) == cfg


def test_best_yaml_alone_gives_the_same_run(study, script):
    done = script("train", "--config", study.path / "best.yaml", "RUN.NAME", "again")
    assert done.returncode == 0, done.stderr
    again = RunDir(Path(done.stdout.splitlines()[-1]))
    best = RunDir(study.path / "best")
    assert again.weights_digest_file.read_text() == best.weights_digest_file.read_text()


def test_a_killed_study_goes_on_without_losing_or_repeating_a_trial(
    tiny, script, tmp_path, wait_until
):
    tiny.write_text(tiny.read_text() + "SEARCH: {TRAIN: {LR: {low: 0.001, high: 0.01}}}\n")
    words = ["--config", tiny, "--trials", "3", "TRAIN.EPOCHS", "10"]
    process = subprocess.Popen(
        [sys.executable, SCRIPT, *words], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: list(tmp_path.glob("runs/tiny/*/trials/0001/checkpoints/*")), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = script("search", *words)
    assert done.returncode == 0, done.stderr
    run = RunDir(Path(done.stdout.splitlines()[-1]))
    assert [trial.state.name for trial in trials_of(run)] == ["COMPLETE"] * 3
    assert "trial 0 (of 3)" not in done.stderr
    assert "trial 1 (of 3)" in done.stderr


def test_a_value_that_was_tried_is_not_trained_again(tiny, script, tmp_path):
    tiny.write_text(tiny.read_text() + "SEARCH: {MODEL: {MAX_LOG: [0.5]}}\n")
    done = script("search", "--config", tiny, "--trials", "2", "TRAIN.EPOCHS", "1")
    assert done.returncode == 0, done.stderr
    assert "the same as trial 0" in done.stderr
    assert len(list(tmp_path.glob("runs/tiny/*/trials/*"))) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "SEARCH is empty"),
        (["SEARCH.TRAIN.LRR", "[1.0]"], "TRAIN.LRR is no config key"),
        (["SEARCH.TRAIN.LR", "[1.0]", "DATA.VAL_FRACTION", "0.0"], "raise DATA.VAL_FRACTION"),
    ],
)
def test_bad_input_is_one_line(tiny, script, words, message):
    done = script("search", "--config", tiny, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
