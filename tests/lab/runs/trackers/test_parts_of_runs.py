"""What a tracker stores of one run in several places, and beside it, is no further seed."""

from importlib.util import find_spec

import pytest

from tests.lab.runs.trackers.conftest import INSTALL
from tests.lab.runs.trackers.test_wandb_logs import row, run_record, write_log
from zoerefine.lab.runs.collect import collect

needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason=f"no W&B: {INSTALL}")


def wandb_folder(store, name, loss, project="six"):
    from wandb.proto import wandb_internal_pb2 as pb

    store.mkdir(exist_ok=True)
    end = pb.Record(exit=pb.RunExitRecord(exit_code=0))
    return write_log(store / name, run_record(project=project), row(1, loss=str(loss)), end)


@needs_wandb
def test_folders_of_one_run_of_wandb_are_one_run(tmp_path):
    first = wandb_folder(tmp_path / "wandb", "run-20261101_235900-abc", 0.5)
    last = wandb_folder(tmp_path / "wandb", "offline-run-20261102_000100-abc", 0.25)
    found = collect([str(tmp_path)], metrics=["loss"])
    assert [(run.path, run.finals) for run in found.runs] == [(str(last), {"loss": 0.25})]
    assert found.left_out == {str(first): f"goes on in {last.name}, and is no further seed"}


@needs_wandb
def test_an_id_that_a_user_chose_again_elsewhere_is_another_run(tmp_path):
    wandb_folder(tmp_path / "a", "run-20261101_000000-abc", 0.5)
    wandb_folder(tmp_path / "b", "run-20261102_000000-abc", 0.25)
    wandb_folder(tmp_path / "b", "run-20261103_000000-abc", 0.125, project="seven")
    losses = [run.finals["loss"] for run in collect([str(tmp_path)], metrics=["loss"]).runs]
    assert losses == [0.5, 0.25, 0.125]


def mlflow_runs(folder, parent_metric, parent_lr):
    """A parent and a child for each of two learning rates; returns the parent's id."""
    tracking = pytest.importorskip("mlflow.tracking", reason=f"MLflow is not installed: {INSTALL}")
    client = tracking.MlflowClient(tracking_uri=(folder / "mlruns").as_uri())
    experiment = client.create_experiment("sweep")

    def log(lr, metric, **tags):
        run_id = client.create_run(experiment, tags=tags).info.run_id
        client.log_param(run_id, "lr", lr)
        client.log_metric(run_id, metric, lr, step=1)
        client.set_terminated(run_id)
        return run_id

    parent = log(parent_lr, parent_metric)
    for lr in (0.25, 0.5):
        log(lr, "rmse", **{"mlflow.parentRunId": parent})
    return parent


def test_a_parent_in_mlflow_that_repeats_its_best_child_is_no_further_seed(tmp_path):
    parent = mlflow_runs(tmp_path, "rmse", 0.25)
    found = collect([str(tmp_path)])
    assert sorted(run.settings["lr"] for run in found.runs) == [0.25, 0.5]
    ((path, reason),) = found.left_out.items()
    assert path.endswith(parent)
    assert reason.startswith("has the settings and a metric of its nested run ")


@pytest.mark.parametrize(("metric", "lr"), [("loss", 0.25), ("rmse", 1.0)])
def test_a_parent_with_results_of_its_own_counts(metric, lr, tmp_path):
    mlflow_runs(tmp_path, metric, lr)
    found = collect([str(tmp_path)])
    assert (len(found.runs), found.left_out) == (3, {})
