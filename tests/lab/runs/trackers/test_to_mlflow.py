"""Runs written to MLflow: whole, once, and readable again."""

import json
import shutil
import socket
from importlib.util import find_spec

import pytest

from tests.lab.runs.trackers.conftest import INSTALL, LOGGED, STEPS
from tests.lab.runs.trackers.test_damaged_stores import copied
from zoerefine.base.errors import UserError
from zoerefine.cli import main
from zoerefine.lab.runs.collect import collect
from zoerefine.lab.runs.metrics.steps import Series
from zoerefine.lab.runs.trackers import mlflow_export
from zoerefine.lab.runs.trackers.mlflow_export import export_runs, store_names
from zoerefine.lab.runs.trackers.stores import TrackedRun

pytestmark = pytest.mark.skipif(
    find_spec("mlflow") is None, reason=f"MLflow is not installed: {INSTALL}"
)

TARGETS = ("mlflow.db", "mlruns")


@pytest.fixture
def database(empty_database, tmp_path):
    """The path of a copy of it."""
    return shutil.copy(empty_database, tmp_path / "mlflow.db")


def export(place, target):
    return export_runs([str(place)], collect([str(place)]), str(target))


def history(client, run, name):
    """Each step and value of a metric."""
    return sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, name))


def read_back(target):
    """Runs by name with every step and value."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(mlflow_export.store_uri(str(target)))
    experiment = client.get_experiment_by_name("zoerefine").experiment_id
    found = {}
    for run in client.search_runs([experiment]):
        histories = {name: history(client, run, name) for name in run.data.metrics}
        assert run.info.run_name not in found
        found[run.info.run_name] = (run, histories)
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_every_run_is_there_once_with_its_history(name, logged, tmp_path):
    target, place = tmp_path / name, logged("contract")
    assert export(place, target).startswith("6 runs added")
    assert export(place, target).startswith("0 runs added") and read_back(target)
    found = read_back(target)
    for run in LOGGED:
        there, histories = found[run.name]
        assert there.data.params["training.lr"] == str(run.lr)
        assert there.data.params["seed"] == str(run.seed)
        assert there.info.status == "FINISHED" and there.data.tags["zoerefine.digest"]
        for metric in ("loss", "val_acc"):
            assert histories[metric] == [(s, values[metric]) for s, values in run.rows]


@pytest.mark.parametrize("way", ["contract", "tensorboard"])
def test_what_was_written_is_read_as_the_same_runs(way, logged, database):
    export(logged(way), database)
    before = collect([str(logged(way))], metrics=["loss"]).runs
    after = collect([str(database)], metrics=["loss"]).runs
    for old, new in zip(before, after, strict=True):
        assert (new.name, new.seed, new.finals) == (old.name, old.seed, old.finals)
        assert new.curves["loss"].epochs == old.curves["loss"].epochs
        assert new.curves["loss"].refined == old.curves["loss"].refined
        assert new.settings["training.lr"] == old.settings["training.lr"]


def test_a_run_that_went_on_is_continued(logged, database, tmp_path):
    place = copied(logged("contract"), tmp_path)
    export(place, database)
    with open(place / "run0" / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "loss": 0.125, "val_acc": NaN}\n')
    assert ", 1 continued, 5 there already" in export(place, database)
    assert ", 6 there already" in export(place, database)
    _, histories = read_back(database)["run0"]
    assert len(histories["loss"]) == STEPS + 1 and histories["loss"][-1] == (5, 0.125)
    assert len(histories["val_acc"]) == STEPS + 1


def write_rows(run, *rows):
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("name", TARGETS)
def test_the_latest_value_is_that_of_the_last_step_where_steps_are_fractions(
    name, logged, tmp_path
):
    place, target = copied(logged("contract"), tmp_path), tmp_path / name
    rows = [{"step": step, "acc": acc} for step, acc in ((0.5, 0.1), (1, 0.2), (1.2, 0.9))]
    write_rows(place / "run0", *rows)
    export(place, target)
    write_rows(place / "run0", *rows, {"step": 1.8, "acc": 0.5})
    assert ", 1 continued, 5 there already" in export(place, target)
    there, histories = read_back(target)["run0"]
    assert there.data.metrics["acc"] == 0.5 and "final.acc" not in there.data.metrics
    assert histories["acc"] == [(1, 0.1), (2, 0.2), (3, 0.9), (4, 0.5)]


@pytest.mark.parametrize("name", TARGETS)
def test_a_run_made_again_at_its_path_is_a_new_one(name, logged, tmp_path):
    place, target = copied(logged("contract"), tmp_path) / "run0", tmp_path / name

    def histories():
        from mlflow.tracking import MlflowClient

        client = MlflowClient(mlflow_export.store_uri(str(target)))
        experiment = client.get_experiment_by_name("zoerefine").experiment_id
        found = client.search_runs([experiment], order_by=[mlflow_export.NEWEST_FIRST])
        return [(run.data.metrics["acc"], history(client, run, "acc")) for run in found]

    first = [{"step": step, "acc": acc} for step, acc in ((1, 0.1), (2, 0.2), (3, 0.9))]
    again = [{"step": step, "acc": acc} for step, acc in ((1, 0.3), (2, 0.4))]
    write_rows(place, *first)
    export(place, target)
    write_rows(place, *again)
    assert export(place, target).startswith("1 run added")
    assert export(place, target).endswith("1 there already")
    old = (0.9, [(1, 0.1), (2, 0.2), (3, 0.9)])
    assert histories() == [(0.4, [(1, 0.3), (2, 0.4)]), old]
    write_rows(place, *again, {"step": 3, "acc": 0.0})
    assert ", 1 continued" in export(place, target)  # of the two, the newer one
    assert histories() == [(0.0, [(1, 0.3), (2, 0.4), (3, 0.0)]), old]
    write_rows(place, *again)  # without the last step: made again, with the same beginning
    assert export(place, target).startswith("1 run added")
    assert histories()[0] == (0.4, [(1, 0.3), (2, 0.4)]) and len(histories()) == 3


def test_a_final_value_has_a_name_of_its_own_and_is_the_latest(logged, database, tmp_path):
    place = copied(logged("contract"), tmp_path) / "run0"
    last = list(LOGGED[0].rows)[-1][1]["val_acc"]
    for count, value in enumerate((0.75, 0.5, 0.75, last)):
        document = {"val_acc": value, "parameters": value, "count": count}
        (place / "results.json").write_text(json.dumps(document))
        assert export(place, database).startswith(f"{int(not count)} run")
        metrics = read_back(database)["run0"][0].data.metrics
        assert metrics["final.val_acc"] == metrics["parameters"] == value
        assert metrics["val_acc"] == last


def tracked_of(values):
    series = {"acc": Series(list(range(1, len(values) + 1)), values)}
    return TrackedRun("runs/a", "a", "finished", {"lr": 1}, {"acc": values[-1]}, series)


def test_a_run_of_other_data_is_a_new_one(database):
    for values, digest, added in (
        ([0.1], "", 1), ([0.1, 0.2], "first", 0), ([0.1, 0.2, 0.3], "second", 1),
    ):  # fmt: skip
        done = mlflow_export.write_runs(str(database), [(tracked_of(values), digest)])
        assert (done.added, done.continued, done.known) == (added, 1 - added, 0)
        newest = next(iter(done.client.search_runs([done.experiment_id])))
        assert newest.data.tags.get("zoerefine.data_digest", "") == digest


def test_an_export_that_was_interrupted_is_completed(logged, database, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(mlflow_export.MlflowTarget, "_write_state", stop)
        with pytest.raises(KeyboardInterrupt):
            export(logged("contract"), database)
    assert export(logged("contract"), database).startswith("5 runs added")
    found = read_back(database)
    assert len(found) == len(LOGGED)
    assert all(len(histories["loss"]) == STEPS for _, histories in found.values())


@pytest.mark.parametrize("name", TARGETS)
def test_names_that_mlflow_refuses_are_replaced(name, logged, tmp_path):
    place = copied(logged("contract"), tmp_path)
    odd = '{"step": 9, "a<b>": 0.5, "a{b}": 0.25, "../up": 0.5, "/": 1.0, "%s": 0.5}' % ("x" * 300)
    with open(place / "run0" / "metrics.jsonl", "a") as file:
        file.write(odd + "\n")
    export(place, tmp_path / name)
    there, _ = read_back(tmp_path / name)["run0"]
    assert there.data.metrics["a_b_"] == 0.5 and there.data.metrics["a_b__2"] == 0.25
    assert there.data.metrics["up"] == 0.5
    assert len(set(store_names(["a", "a_2", "a", "<", ">", "!"]).values())) == 5


def test_a_server_that_does_not_answer_is_one_line(logged, monkeypatch):
    monkeypatch.setenv(mlflow_export.RETRIES, "0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(UserError, match=f"--to-mlflow http://127.0.0.1:{port}: ") as raised:
        export(logged("contract"), f"http://127.0.0.1:{port}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "uri", ["https://me:se/cr?et@host/x", "postgresql://me:secret@host/db", "http://secret@host"]
)
def test_a_password_in_the_address_is_refused_and_not_shown(uri, script, logged):
    done = script("analyze", logged("contract"), "--out", "out", "--to-mlflow", uri, code=2)
    assert done.stderr.startswith("error: --to-mlflow")
    assert "cret" not in done.stdout + done.stderr and "out" not in done.stdout


@pytest.mark.parametrize(
    "place", ["/proc/x.db", "/proc/runs", "sqlite:////proc/x.db", "notes.db", "notes.db/runs"]
)
def test_a_store_that_cannot_be_written_is_one_line_before_the_analysis(
    place, logged, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.db").write_text("these are my notes")
    code = main(["analyze", str(logged("contract")), "--out", "out", "--to-mlflow", place])
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith(f"error: --to-mlflow {place}: ")
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "notes.db").read_text() == "these are my notes"
