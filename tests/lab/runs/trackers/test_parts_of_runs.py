"""What a tracker stores of one run in several places, and beside it, is no further seed."""

from importlib.util import find_spec

import pytest

from tests.lab.runs.trackers.conftest import INSTALL
from tests.lab.runs.trackers.test_wandb_logs import row, run_record, write_log
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.runs.collect import collect
from zoerefine.lab.runs.filter import parse_filter
from zoerefine.lab.runs.metrics import read_metrics

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
def test_a_part_of_wandb_that_only_adds_a_metric_keeps_what_the_others_say(tmp_path):
    """As `wandb.init(id=ID, resume="must")` of an evaluation, without a config."""
    from wandb.proto import wandb_internal_pb2 as pb

    end = pb.Record(exit=pb.RunExitRecord(exit_code=0))
    first = run_record(project="six")
    for key, text in (("lr", "0.5"), ("seed", "3"), ("_target_", '"net"'), ("_wandb", '{"t": 1}')):
        first.run.config.update.add(key=key, value_json=text)
    rows = [row(step, loss=f"0.{9 - step}") for step in (1, 2)]
    (tmp_path / "wandb").mkdir()
    program = pb.Record(environment=pb.EnvironmentRecord(program="train.py"))
    write_log(tmp_path / "wandb/run-20261101_235900-abc", first, program, *rows, end)
    program = pb.Record(environment=pb.EnvironmentRecord(program="evaluate.py"))
    second = run_record(project="six")
    second.run.config.update.add(key="eval.seed", value_json="99")  # of the evaluation's data
    again = [second, program, row(2, loss="0.5"),
             row(3, loss="0.25", acc="0.75"), end]  # fmt: skip
    write_log(tmp_path / "wandb/run-20261102_000100-abc", *again)
    keeps = parse_filter("lr > 0.25")
    (run,) = collect([str(tmp_path)], keeps, metrics=["loss"]).runs
    found = {key: run.settings[key] for key in run.settings if key not in ("project", "commit")}
    assert found == {"lr": 0.5, "_target_": "net", "script": "train.py"}
    assert run.seed == 3 and run.named_settings["seed"] == 3
    assert run.finals == {"acc": 0.75, "loss": 0.25}
    assert (run.curves["loss"].epochs, run.curves["loss"].refined) == ([1, 2, 3], [0.8, 0.5, 0.25])


@needs_wandb
def test_the_curve_of_a_part_that_counts_its_steps_anew_is_no_mixture(tmp_path):
    (tmp_path / "wandb").mkdir()
    for time, losses in (("20261101_235900", "987"), ("20261102_000100", "32")):
        rows = [row(step, loss=text) for step, text in enumerate(losses)]
        write_log(tmp_path / f"wandb/run-{time}-abc", run_record(project="six"), *rows)
    (run,) = collect([str(tmp_path)], metrics=["loss"]).runs
    assert run.curves["loss"].refined == [3, 2]


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


@pytest.fixture
def client(tmp_path):
    tracking = pytest.importorskip("mlflow.tracking", reason=f"MLflow is not installed: {INSTALL}")
    return tracking.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())


@pytest.fixture
def log(client):
    """Log a run: log(loss, parent=id, seed=3, lr=0.1, source="train.py") -> its id."""
    experiment = client.create_experiment("nested")

    def run(loss=None, parent="", source="", **parameters):
        tags = {"mlflow.parentRunId": parent, "mlflow.source.name": source}
        tags = {name: text for name, text in tags.items() if text}
        run_id = client.create_run(experiment, tags=tags).info.run_id
        for name, value in parameters.items():
            client.log_param(run_id, name, value)
        if loss is not None:
            client.log_metric(run_id, "loss", loss, step=1)
        client.set_terminated(run_id)
        return run_id

    return run


def test_a_parent_without_the_metric_of_its_nested_runs_is_no_sample(log, tmp_path):
    parent = log(lr=0.5)
    for seed in range(3):
        log(0.25 + seed, parent=parent, lr=0.5, seed=seed)
    found = collect([str(tmp_path)], metrics=["loss"])
    assert sorted(run.seed for run in found.runs) == [0, 1, 2]
    assert [*found.left_out.values()] == ["has no loss, which the runs nested in it have"]


def test_an_evaluation_that_is_nested_in_its_training_is_no_further_seed(client, log, tmp_path):
    training = log(0.25, lr=0.5, seed=3)
    evaluation = log(5.0, parent=training, lr=0.5, seed=3)
    for run in (training, evaluation):
        client.log_metric(run, "batch", 8, step=1)
    found = collect([str(tmp_path)], metrics=["loss"])
    assert [run.finals["loss"] for run in found.runs] == [0.25]
    ((_, reason),) = found.left_out.items()
    assert reason.startswith("is nested in ") and "which has its settings and seed" in reason


def test_a_parent_that_is_the_mean_of_its_seeds_is_no_further_seed(log, tmp_path):
    parent = log(0.5, lr=0.5)
    for seed in range(3):
        log(0.25 * (1 + seed), parent=parent, lr=0.5, seed=seed)
    assert sorted(run.seed for run in collect([str(tmp_path)]).runs) == [0, 1, 2]


def test_a_job_that_holds_nested_runs_has_the_results_of_their_parent(client, log, tmp_path):
    parent = log(lr=0.5)
    for fold in range(3):
        log(1.0 + fold, parent=parent, lr=0.5)
    client.log_metric(parent, "loss", 0.25, step=1)
    assert read_metrics(RunDir(tmp_path)).final == {"loss": 0.25}


def test_the_script_that_a_tracker_recorded_is_a_setting(log, tmp_path):
    for script in ("/home/a/cnn.py", "/home/a/mlp.py"):
        for seed in range(2):
            log(0.5, source=script, lr=0.5, seed=seed)
    runs = collect([str(tmp_path)], metrics=["loss"]).runs
    assert len({run.group for run in runs}) == 2
    assert {run.settings["script"] for run in runs} == {"cnn.py", "mlp.py"}


@needs_wandb
def test_the_script_that_wandb_recorded_is_a_setting(tmp_path):
    from wandb.proto import wandb_internal_pb2 as pb

    environment = pb.Record(environment=pb.EnvironmentRecord(program="/home/a/cnn.py"))
    records = environment, pb.Record(environment=pb.EnvironmentRecord(cpu_count=2))  # as W&B writes
    write_log(tmp_path / "run-20261101_000000-abc", run_record(), *records, row(1, loss="0.5"))
    (run,) = collect([str(tmp_path)]).runs
    assert run.settings["script"] == "cnn.py"
