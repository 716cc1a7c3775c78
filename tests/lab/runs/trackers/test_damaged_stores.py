"""Damaged stores, foreign texts and missing libraries: one line each, and the rest is read."""

import csv
import shutil
import sqlite3

import pytest

from tests.lab.runs.trackers.conftest import LOGGED, start_wandb
from zoerefine.base.errors import UserError
from zoerefine.lab.analysis.analyze import analyze
from zoerefine.lab.runs.collect import collect

HOSTILE = '=HYPERLINK("http://x") <script>alert(1)</script> \u202e \\input{x}'


def copied(place, folder):
    """A copy of a store that a test may change."""
    target = folder / place.name
    if place.is_dir():
        shutil.copytree(place, target, symlinks=True)
    else:
        shutil.copy(place, target)
    return target


def runs_of(store, *names):
    found = collect([str(store)], metrics=names)
    return {run.name: run for run in found.runs}, found.left_out


def wandb_logs(store):
    return sorted(store.rglob("run-*.wandb"))


def test_a_damaged_run_of_mlflow_is_named_and_the_others_are_read(logged, tmp_path):
    store = copied(logged("mlflow folder"), tmp_path)
    broken = sorted(path.parent for path in store.glob("*/*/meta.yaml"))[0]
    (broken / "meta.yaml").write_text("{")
    runs, left_out = runs_of(store)
    assert len(runs) == len(LOGGED) - 1
    assert list(left_out) == [str(broken)] and "\n" not in left_out[str(broken)]


def test_a_damaged_metric_of_mlflow_is_named(logged, tmp_path):
    store = copied(logged("mlflow folder"), tmp_path)
    metric = sorted(store.glob("*/*/metrics/val_acc"))[0]
    metric.write_text("1 2 3 4 5 6 7\n")
    runs, left_out = runs_of(store, "val_acc")
    assert len(runs) == len(LOGGED) - 1
    assert list(left_out) == [str(metric.parents[1])]


@pytest.mark.parametrize("kept", [20, 5000, 200_000])
def test_a_database_that_was_cut_off_is_one_line(logged, tmp_path, kept):
    store = copied(logged("mlflow database"), tmp_path)
    store.write_bytes(store.read_bytes()[:kept])
    with pytest.raises(UserError, match=f"nothing to analyse in {store}") as raised:
        collect([str(store)])
    assert "\n" not in str(raised.value)


def test_a_database_of_another_program_is_no_store(tmp_path):
    with sqlite3.connect(tmp_path / "study.db") as connection:
        connection.execute("CREATE TABLE studies (id INTEGER)")
    with pytest.raises(UserError, match="nothing to analyse"):
        collect([str(tmp_path / "study.db")])


def test_a_run_that_was_deleted_in_mlflow_is_left_out(logged, tmp_path):
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    from mlflow.tracking import MlflowClient

    for way, uri in (("mlflow folder", "{}"), ("mlflow database", "sqlite:///{}")):
        store = copied(logged(way), tmp_path)
        client = MlflowClient(tracking_uri=uri.format(store))
        experiment = client.get_experiment_by_name("six").experiment_id
        client.delete_run(client.search_runs([experiment])[0].info.run_id)
        assert len(runs_of(store)[0]) == len(LOGGED) - 1


def test_a_log_of_wandb_that_was_cut_off_is_read_up_to_there(logged, tmp_path):
    store = copied(logged("wandb"), tmp_path)
    log = wandb_logs(store)[0]
    data = log.read_bytes()
    log.write_bytes(data[: data.rfind(b"val_acc") + 3])  # within a record of the last step
    runs, left_out = runs_of(store, "val_acc")
    assert not left_out and len(runs) == len(LOGGED)
    assert runs["run0"].state == "killed" and runs["run0"].faults
    assert len(runs["run0"].curves["val_acc"].epochs) >= 3


def test_a_changed_byte_in_a_log_of_wandb_is_named(logged, tmp_path):
    store = copied(logged("wandb"), tmp_path)
    log = wandb_logs(store)[0]
    data = bytearray(log.read_bytes())
    data[data.find(b"val_acc")] ^= 1  # within a record, not in its header
    log.write_bytes(data)
    runs, _ = runs_of(store)
    assert "damaged at byte" in runs["run0"].faults[0] and not runs["run1"].faults


@pytest.mark.parametrize("content", [b"", b"text", b":W&B\xe1\xbe\x00", bytes(100_000)])
def test_a_file_that_is_no_log_of_wandb_is_left_out(logged, tmp_path, content):
    store = copied(logged("wandb"), tmp_path)
    log = wandb_logs(store)[0]
    log.write_bytes(content)
    runs, left_out = runs_of(store)
    assert len(runs) == len(LOGGED) - 1
    assert "cannot be read" in left_out[str(log.parent)]


@pytest.mark.usefixtures("no_pictures")
def test_texts_of_a_tracker_stay_text(tmp_path):
    wandb = pytest.importorskip("wandb", reason="W&B is not installed")
    for number in range(2):
        run = LOGGED[number]
        (tmp_path / run.name).mkdir()
        with start_wandb(wandb, tmp_path / run.name, run) as started:
            started.config.update({"note": f"{HOSTILE}{number}", "=1+1": number})
            started.log({"val_acc": 0.5})
            started.log({"=cmd": 0.5})
    analyze([str(tmp_path)], tmp_path / "out", metrics=["val_acc"])
    with open(tmp_path / "out" / "runs.csv", newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert f"'{HOSTILE}0" in cells and "'=cmd" in cells and "'=1+1" in cells
    assert "<script>alert" not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("name", "content", "module"),
    [
        ("run-1.wandb", b":W&B", "wandb.proto.wandb_internal_pb2"),
        ("0/meta.yaml", b"artifact_location: x", "mlflow.tracking"),
    ],
)
def test_a_missing_library_is_one_line_that_names_the_extra(
    tmp_path, monkeypatch, name, content, module
):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(UserError, match=r"needs .*: pip install 'zoerefine\[trackers\]'") as raised:
        collect([str(tmp_path)])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("address", ["https://user:word@host/x", "postgresql://u:word@host/db"])
def test_the_address_of_a_server_is_refused_without_its_password(address):
    with pytest.raises(UserError, match="address of a server") as raised:
        collect([address])
    assert "word" not in str(raised.value)
