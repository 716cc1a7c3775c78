"""A launched script's own MLflow store or W&B folder, which it left, holds the run's metrics."""

import os
import shutil
from dataclasses import replace

import pytest

from tests.lab.runs.trackers.conftest import LOGGED, WAYS, log_mlflow, start_wandb
from zoerefine import RunDir, read_metrics
from zoerefine.lab.runs.collect import collect

STORES = {
    "mlflow folder": "left/mlruns",
    "mlflow database": "left/mlflow.db",
    "wandb": "left/run1/wandb/offline-run-",
}


@pytest.fixture
def run(tmp_path):
    """What a launch leaves of a script without a config."""
    folder = tmp_path / "runs" / "net" / "1"
    folder.mkdir(parents=True)
    (folder / "provenance.json").write_text('{"module": "train.py", "config": "-"}')
    (folder / "status.json").write_text('{"state": "finished"}')
    return RunDir(folder)


@pytest.mark.parametrize("way", STORES)
def test_a_store_that_a_script_left_is_read(way, run, here, monkeypatch):
    WAYS[way](run.left, [LOGGED[1]])
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    before = dict(os.environ)
    found = read_metrics(run)
    for name in ("loss", "val_acc"):
        rows = {step: metrics[name] for step, metrics in LOGGED[1].rows}
        series = found.series[name]
        assert dict(zip(series.steps, series.values, strict=True)) == rows
        assert found.final[name] == rows[4]
    assert found.source.startswith(STORES[way]) and not found.faults
    assert os.environ == before, "a job that is launched later would get what differs"
    (known,) = collect([str(run.path)], metrics=["val_acc"]).runs
    assert (known.settings["training.lr"], known.final("loss")) == (0.25, found.final["loss"])
    assert f"(from {STORES[way]}" in here("show", run.path).out


def test_a_folder_of_mlflow_without_its_empty_folders_is_read(run):
    """As `left/` has it, which keeps files alone."""
    WAYS["mlflow folder"](run.left, [LOGGED[1]])
    for folder in run.left.glob("mlruns/*/*/artifacts"):
        shutil.rmtree(folder)
    found = read_metrics(run)
    last = list(LOGGED[1].rows)[-1][1]
    assert found.final["loss"] == last["loss"] and not found.faults
    assert not any(run.left.glob("mlruns/*/*/artifacts"))


def test_of_several_runs_in_a_store_the_last_one_counts(run):
    """The first one was killed; the second one began again."""
    run.left.mkdir()
    log_mlflow(f"sqlite:///{run.left}/mlflow.db", [LOGGED[5], replace(LOGGED[0], name="again")])
    assert read_metrics(run).series["loss"].values == [row["loss"] for _, row in LOGGED[0].rows]
    assert read_metrics(run).faults == ()
    (run.path / "provenance.json").write_text('{"module": "train.py", "attempt": 1}')
    fault = "left/mlflow.db: the steps of loss, val_acc go back to 1 or come twice"
    assert read_metrics(run).faults[0].startswith(fault)


def test_folds_in_one_run_of_mlflow_are_named_and_the_last_value_is_the_final_one(run):
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow is not installed")
    client = tracking.MlflowClient(tracking_uri=(run.left / "mlruns").as_uri())
    run_id = client.create_run(client.create_experiment("folds")).info.run_id
    for time, (step, value) in enumerate([(0, 0.5), (1, 0.75), (2, 0.875), (0, 0.5), (1, 0.25)]):
        client.log_metric(run_id, "acc", value, timestamp=1000 + time, step=step)
    for value in (0.5, 0.75, 0.25):  # in one millisecond
        client.log_metric(run_id, "f1", value, timestamp=1000)
    (run.path / "provenance.json").write_text('{"module": "train.py", "attempt": 1}')
    metrics = read_metrics(run)
    assert metrics.final == {"acc": 0.875, "f1": 0.25}
    assert metrics.faults[0].startswith("left/mlruns: the steps of acc go back to 1 or come twice")


def test_a_summary_that_the_script_set_goes_before_the_last_value(run):
    wandb = pytest.importorskip("wandb", reason="W&B is not installed")
    run.left.mkdir()
    with start_wandb(wandb, run.left, LOGGED[0]) as started:
        started.log({"val_acc": 0.5})
        started.log({"val_acc": 0.25})
        started.summary["val_acc"] = 0.5
    found = read_metrics(run)
    assert found.final == {"val_acc": 0.5} and found.series["val_acc"].values == [0.5, 0.25]


def test_a_store_that_cannot_be_read_is_named(run):
    run.left.mkdir()
    (run.left / "mlflow.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    (fault,) = read_metrics(run).faults
    assert fault.startswith("left/mlflow.db: ") and "mlflow.db cannot be read" in fault
