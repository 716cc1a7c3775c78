"""Of repetitions of one seed the run that started last counts, wherever a tracker keeps it."""

from importlib.util import find_spec

import pytest

from tests.lab.runs.trackers.conftest import INSTALL
from tests.lab.runs.trackers.test_wandb_logs import row, run_record, write_log
from zoerefine.lab.analysis.groups import Measure, make_groups
from zoerefine.lab.runs.collect import collect

OLD, NEW, ROUNDS = 0.5, 0.25, (1_700_000_000, 1_700_090_000)
SEEDS = range(6)


def in_mlflow(uri):
    """Two rounds of all seeds. MLflow names its runs at random."""
    tracking = pytest.importorskip("mlflow.tracking", reason=f"MLflow is not installed: {INSTALL}")
    client = tracking.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("six")
    for start, loss in zip(ROUNDS, (OLD, NEW), strict=True):
        for seed in SEEDS:
            run_id = client.create_run(experiment, start_time=1000 * start).info.run_id
            client.log_param(run_id, "seed", seed)
            client.log_metric(run_id, "loss", loss + seed / 64, step=1)
            client.set_terminated(run_id)


def in_mlflow_folder(folder):
    in_mlflow((folder / "mlruns").as_uri())


def in_mlflow_database(folder):
    folder.mkdir()
    in_mlflow(f"sqlite:///{folder}/mlflow.db")


def in_wandb(folder):
    """The later round is in the folder that comes first by its name."""
    from wandb.proto import wandb_internal_pb2 as pb

    for place, start, loss in zip("ba", ROUNDS, (OLD, NEW), strict=True):
        (folder / place).mkdir(parents=True)
        for seed in SEEDS:
            record = run_record()
            record.run.start_time.seconds = start
            record.run.config.update.add(key="seed", value_json=str(seed))
            end = pb.Record(exit=pb.RunExitRecord(exit_code=0))
            value = row(1, loss=str(loss + seed / 64))
            place_of_run = folder / place / f"offline-run-{seed}"
            write_log(place_of_run, record, value, end, run_id=seed)


def in_tensorboard(folder):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="torch is not installed")
    for place, start, loss in zip("ba", ROUNDS, (OLD, NEW), strict=True):
        for seed in SEEDS:
            where = folder / place / str(seed)
            with tensorboard.SummaryWriter(str(where)) as writer:
                writer.add_hparams({"seed": seed}, {}, run_name=".")
                writer.add_scalar("loss", loss + seed / 64, 1)
            for file in where.iterdir():
                file.rename(where / f"events.out.tfevents.{start}.host.{file.name[-3:]}")


needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason=f"no W&B: {INSTALL}")
STORES = [
    in_mlflow_folder,
    in_mlflow_database,
    pytest.param(in_wandb, marks=needs_wandb),
    in_tensorboard,
]


@pytest.mark.parametrize("log", STORES)
def test_the_run_that_started_last_counts(log, tmp_path):
    log(tmp_path / "store")
    measure = Measure(metric="loss")
    (group,) = make_groups(collect([str(tmp_path / "store")], metrics=["loss"]).runs, measure)
    assert sorted(group.scores) == [NEW + seed / 64 for seed in SEEDS]
    assert group.repeated == len(SEEDS)
