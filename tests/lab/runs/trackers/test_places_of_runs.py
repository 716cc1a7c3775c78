"""Where a tracker keeps runs tells them apart: they are no seeds of one group without a word."""

from importlib.util import find_spec

import pytest

from tests.lab.runs.trackers.conftest import INSTALL
from tests.lab.runs.trackers.test_wandb_logs import row, run_record, write_log
from tests.tables import csv_rows
from zoerefine.base.errors import UserError
from zoerefine.lab.analysis.analyze import analyze

pytestmark = pytest.mark.usefixtures("no_pictures")
LOSSES = {"final": {0.25: 0.5, 0.5: 0.375}, "old": {0.25: 0.125, 0.5: 0.875}}
RATES, SEEDS = (0.25, 0.5), range(3)
GROUPS = {f"lr {lr}, {place}" for place in LOSSES for lr in RATES}
needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason=f"no W&B: {INSTALL}")


def cases():
    """Place, learning rate, seed and loss of twelve runs."""
    for place, losses in LOSSES.items():
        for lr, loss in losses.items():
            for seed in SEEDS:
                yield place, lr, seed, loss + seed / 64


def in_mlflow(uri):
    tracking = pytest.importorskip("mlflow.tracking", reason=f"MLflow is not installed: {INSTALL}")
    client = tracking.MlflowClient(tracking_uri=uri)
    experiments = {place: client.create_experiment(place) for place in LOSSES}
    for place, lr, seed, loss in cases():
        run_id = client.create_run(experiments[place]).info.run_id
        for key, value in (("lr", lr), ("seed", seed)):
            client.log_param(run_id, key, value)
        client.log_metric(run_id, "loss", loss, step=1)
        client.set_terminated(run_id)


def in_mlflow_folder(folder):
    in_mlflow((folder / "mlruns").as_uri())


def in_mlflow_database(folder):
    folder.mkdir()
    in_mlflow(f"sqlite:///{folder}/mlflow.db")


def in_wandb(folder, **kinds):
    """Runs of W&B; `kinds` are the fields of its record that name the place, and their names."""
    from wandb.proto import wandb_internal_pb2 as pb

    folder.mkdir()
    for number, (place, lr, seed, loss) in enumerate(cases()):
        record = run_record(**{field: kind.format(place) for field, kind in kinds.items()})
        for key, value in (("lr", lr), ("seed", seed)):
            record.run.config.update.add(key=key, value_json=str(value))
        end = pb.Record(exit=pb.RunExitRecord(exit_code=0))
        values = row(1, loss=str(loss))
        write_log(folder / f"offline-run-{number}", record, values, end, run_id=number)


def in_wandb_projects(folder):
    in_wandb(folder, project="{}", run_group="one")


def in_wandb_groups(folder):
    in_wandb(folder, project="one", run_group="{}")


def groups_in(out):
    return {row["group"]: row["scored"] for row in csv_rows(out / "groups.csv")}


STORES = [
    (in_mlflow_folder, "experiment"),
    (in_mlflow_database, "experiment"),
    pytest.param(in_wandb_projects, "project", marks=needs_wandb),
    pytest.param(in_wandb_groups, "group", marks=needs_wandb),
]


@pytest.mark.parametrize(("log", "key"), STORES)
def test_a_tracker_s_place_of_runs_is_a_setting_and_can_be_chosen(log, key, tmp_path):
    log(tmp_path / "store")
    analyze([str(tmp_path / "store")], tmp_path / "all", metrics=["loss"])
    assert groups_in(tmp_path / "all") == dict.fromkeys(GROUPS, "3")
    where = f"{key} == 'final'"
    analyze([str(tmp_path / "store")], tmp_path / "one", where=where, metrics=["loss"])
    assert groups_in(tmp_path / "one") == {"lr 0.25": "3", "lr 0.5": "3"}


def in_tensorboard(folder, name, more=0):
    """Event files of two networks without hyper-parameters, to folders of these names."""
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="torch is not installed")
    for network, loss in (("resnet", 0.25), ("vit", 0.5)):
        for seed in SEEDS:
            place = folder / name.format(network=network, seed=seed)
            with tensorboard.SummaryWriter(str(place)) as writer:
                writer.add_scalar("loss", loss + more + seed / 64, 1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "{network}/s{seed}",
            "6 runs: the runs of resnet and vit have no known settings, and count as one group: "
            "--by name tells them apart.",
        ),
        (
            "{network}_seed{seed}",
            "6 runs: its 6 runs have no known settings, and count as one group.",
        ),
        (
            "{network}/seed{seed}/logs",
            "6 runs: the runs of resnet/seed and vit/seed have no known settings, and count as one "
            "group.",
        ),
    ],
)
def test_runs_of_tensorboard_without_settings_are_one_group_with_a_word(
    name, said, tmp_path, capsys
):
    in_tensorboard(tmp_path / "tb", name)
    analyze([str(tmp_path / "tb")], tmp_path / "out", metrics=["loss"])
    assert said in capsys.readouterr().err.splitlines()
    assert groups_in(tmp_path / "out") == {"6 runs": "6"}


def test_by_name_takes_the_folders_of_tensorboard(tmp_path, capsys):
    in_tensorboard(tmp_path / "tb", "{network}/s{seed}")
    analyze([str(tmp_path / "tb")], tmp_path / "out", by="name", metrics=["loss"])
    assert groups_in(tmp_path / "out") == {"resnet": "3", "vit": "3"}
    assert "no known settings" not in capsys.readouterr().err


def test_by_name_takes_the_folders_below_the_one_that_has_all(tmp_path):
    for more, data in enumerate("ab"):
        in_tensorboard(tmp_path / "tb" / data, "{network}/s{seed}", more)
    analyze([str(tmp_path / "tb")], tmp_path / "out", by="name", metrics=["loss"])
    names = "a/resnet", "a/vit", "b/resnet", "b/vit"
    assert groups_in(tmp_path / "out") == dict.fromkeys(names, "3")
    analyze([str(tmp_path / "tb/a/vit")], tmp_path / "one", metrics=["loss"])
    with pytest.raises(UserError, match="no run has a name that others could share"):
        analyze([str(tmp_path / "tb/a/vit")], tmp_path / "one", by="name", metrics=["loss"])


@needs_wandb
def test_by_name_takes_the_names_in_a_tracker(tmp_path, capsys):
    (tmp_path / "wandb").mkdir()
    for number, name in enumerate(("resnet", "vit", "resnet", "vit", "resnet", "vit")):
        record = run_record()
        record.run.display_name = name
        folder = tmp_path / "wandb" / f"offline-run-{number}"
        write_log(folder, record, row(1, loss=str(number)), run_id=number)
    analyze([str(tmp_path / "wandb")], tmp_path / "all", metrics=["loss"])
    assert "the runs of resnet and vit have no known settings" in capsys.readouterr().err
    analyze([str(tmp_path / "wandb")], tmp_path / "out", by="name", metrics=["loss"])
    assert groups_in(tmp_path / "out") == {"resnet": "3", "vit": "3"}


def test_by_name_without_names_is_refused(tmp_path):
    for seed in SEEDS:
        run = tmp_path / "runs" / str(seed)
        run.mkdir(parents=True)
        (run / "provenance.json").write_text("{}")
        (run / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    with pytest.raises(UserError, match="--by name: no run has a name"):
        analyze([str(tmp_path / "runs")], tmp_path / "out", by="name", metrics=["loss"])
