"""The same six runs, as a script may log them: for zoerefine, TensorBoard, MLflow and W&B.

Values are exact in float32, which is what TensorBoard stores.
"""

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import yaml

from zoerefine.base.yaml.keys import flatten

# No test may contact a server.
os.environ["WANDB_MODE"] = "offline"
os.environ["WANDB_ERROR_REPORTING"] = "false"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

INSTALL = "pip install -r requirements-trackers.lock"
RATES, SEEDS, STEPS = (0.25, 0.5), (0, 1, 2), 4


@dataclass(frozen=True)
class LoggedRun:
    """One run: two learning rates with three seeds each."""

    name: str
    lr: float
    seed: int

    @property
    def settings(self):
        return {
            "model": "mlp" if self.lr > 0.3 else "cnn",
            "seed": self.seed,
            "training": {"epochs": STEPS, "lr": self.lr},
        }

    @property
    def flat(self):
        return flatten(self.settings)

    @property
    def rows(self):
        """Step and metrics."""
        for step in range(1, STEPS + 1):
            val_acc = (step * 8 + self.seed) / 64 + self.lr / 4
            yield step, {"loss": 1 - val_acc, "val_acc": val_acc}


LOGGED = [
    LoggedRun(f"run{number}", lr, seed)
    for number, (lr, seed) in enumerate((lr, seed) for lr in RATES for seed in SEEDS)
]


def log_contract(folder):
    """Run directories, as a launched script that writes metrics.jsonl leaves them."""
    for run in LOGGED:
        path = folder / run.name
        path.mkdir(parents=True)
        recorded = {"module": "train.py", "input": "input.yaml", "seed_key": "seed"}
        (path / "provenance.json").write_text(json.dumps(recorded))
        (path / "status.json").write_text('{"state": "finished"}')
        (path / "input.yaml").write_text(yaml.safe_dump(run.settings))
        rows = [json.dumps({"step": step} | metrics) for step, metrics in run.rows]
        (path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def log_tensorboard(folder, runs=LOGGED):
    """Event files, with hyper-parameters in a folder of their own, as torch writes them."""
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="torch is not installed")

    for run in runs:
        with tensorboard.SummaryWriter(str(folder / run.name)) as writer:
            writer.add_hparams(run.flat, {})
            for step, metrics in run.rows:
                for name, value in metrics.items():
                    writer.add_scalar(name, value, step)
    return folder


def log_mlflow(uri, runs):
    """Runs in a new MLflow experiment."""
    pytest.importorskip("mlflow", reason=f"MLflow is not installed: {INSTALL}")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("six")
    for number, run in enumerate(runs):
        run_id = client.create_run(experiment, 1000 + number, run_name=run.name).info.run_id
        for key, value in run.flat.items():
            client.log_param(run_id, key, value)
        for step, metrics in run.rows:
            for name, value in metrics.items():
                client.log_metric(run_id, name, value, step=step)
        client.set_terminated(run_id)
    return client


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A database of MLflow without runs: MLflow takes a second to make one."""
    tracking = pytest.importorskip("mlflow.tracking", reason=f"MLflow is not installed: {INSTALL}")
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    tracking.MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


def log_mlflow_folder(folder, runs=LOGGED):
    log_mlflow((folder / "mlruns").as_uri(), runs)
    return folder / "mlruns"


def log_mlflow_database(folder, runs=LOGGED):
    folder.mkdir()
    log_mlflow(f"sqlite:///{folder / 'mlflow.db'}", runs)
    return folder / "mlflow.db"


def log_wandb(folder, runs=LOGGED):
    """Offline runs of W&B, each in a folder of its own."""
    wandb = pytest.importorskip("wandb", reason=f"W&B is not installed: {INSTALL}")
    for run in runs:
        place = folder / run.name
        place.mkdir(parents=True)
        with start_wandb(wandb, place, run) as started:
            for step, metrics in run.rows:
                started.log(metrics, step=step)
    return folder


@contextmanager
def start_wandb(wandb, folder, run, **settings):
    """An offline run of W&B, whose file is whole at the end.

    W&B's own process writes it, and may still do so when the run has finished.
    """
    settings = {"disable_git": True} | settings
    quiet = wandb.Settings(x_disable_stats=True, console="off", silent=True, **settings)
    with wandb.init(
        project="six", name=run.name, config=run.settings, dir=str(folder), mode="offline",
        settings=quiet,
    ) as started:  # fmt: skip
        yield started
    wandb.teardown()


WAYS = {
    "contract": log_contract,
    "tensorboard": log_tensorboard,
    "mlflow folder": log_mlflow_folder,
    "mlflow database": log_mlflow_database,
    "wandb": log_wandb,
}


@pytest.fixture(scope="session")
def logged(tmp_path_factory):
    """A function: the place of the six runs, logged in one way. Tests must not change it."""
    places = {}

    def place_of(way):
        if way not in places:
            places[way] = WAYS[way](tmp_path_factory.mktemp(way.replace(" ", "_")) / "runs")
        return places[way]

    return place_of
