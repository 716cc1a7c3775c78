"""Logs of W&B as its versions and modes write them: steps, values, shared and resumed runs."""

import struct
import zlib
from importlib.util import find_spec

import pytest

from tests.lab.runs.trackers.conftest import LOGGED, start_wandb
from zoerefine.lab.runs.trackers.wandb import read

pytestmark = pytest.mark.skipif(find_spec("wandb") is None, reason="W&B is not installed")


def write_log(folder, *records, run_id="abc"):
    """A run's folder with a log of these records, each in one fragment."""
    folder.mkdir()
    data = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
    for record in records:
        content = record.SerializeToString()
        crc = zlib.crc32(content, zlib.crc32(bytes([1])))
        data += struct.pack("<IHB", crc, len(content), 1) + content
    (folder / f"run-{run_id}.wandb").write_bytes(data)
    return folder


def run_record(**fields):
    from wandb.proto import wandb_internal_pb2 as pb

    return pb.Record(run=pb.RunRecord(run_id="abc", display_name="one", **fields))


def row(step=None, **values):
    """A record of history; a value is JSON text, or a field of W&B's own type and its value."""
    from wandb.proto import wandb_internal_pb2 as pb

    record = pb.Record()
    if step is not None:
        record.history.step.num = step
    for key, value in values.items():
        item = record.history.item.add()
        item.nested_key.append(key)
        if isinstance(value, tuple):
            setattr(item, *value)
        else:
            item.value_json = value
    return record


def points(folder, name):
    (run,) = read(folder, None).runs
    series = run.series[name]
    return dict(zip(series.steps, series.values, strict=True)), run


def test_the_step_of_the_record_counts_where_its_items_have_none(tmp_path):
    log = write_log(tmp_path / "run", run_record(), row(3, loss="0.5"), row(7, loss="0.25"))
    found, run = points(log, "loss")
    assert found == {3: 0.5, 7: 0.25} and run.faults == []


def test_a_step_among_the_items_goes_first(tmp_path):
    log = write_log(tmp_path / "run", run_record(), row(3, loss="0.5", epoch="1"))
    assert points(log, "loss")[0] == {1: 0.5}


def test_rows_of_shared_mode_are_counted(tmp_path):
    """The server gives them their steps, so the file has none."""
    log = write_log(tmp_path / "run", run_record(), row(loss="0.5"), row(acc="1"), row(loss="0.25"))
    assert points(log, "loss")[0] == {1: 0.5, 2: 0.25}


def test_a_resumed_run_goes_on(tmp_path):
    second = run_record(resumed=True, starting_step=2)
    rows = [row(0, loss="0.5"), row(1, loss="0.4")]
    log = write_log(tmp_path / "run", run_record(), *rows, second, row(2, loss="0.3"))
    assert points(log, "loss")[0] == {0: 0.5, 1: 0.4, 2: 0.3}


def test_values_of_every_type_are_read(tmp_path):
    typed = {"loss": ("number", 0.5), "count": ("integer", 4), "name": ("text", "a")}
    log = write_log(tmp_path / "run", run_record(), row(1, **typed, acc=("json", "0.75")))
    (run,) = read(log, None).runs
    assert run.finals == {"loss": 0.5, "count": 4.0, "acc": 0.75} and run.faults == []


def test_a_value_that_cannot_be_read_is_named(tmp_path):
    log = write_log(tmp_path / "run", run_record(), row(1, loss="0.5", acc="{"))
    found, run = points(log, "loss")
    assert found == {1: 0.5}
    assert run.faults == ["run-abc.wandb: values that are not JSON: acc"]


def test_a_history_without_numbers_is_named(tmp_path):
    log = write_log(tmp_path / "run", run_record(), row(1, name='"a"'))
    (run,) = read(log, None).runs
    assert run.faults == ["run-abc.wandb: no number in its 1 row of history"]


def test_steps_are_those_that_wandb_draws_and_media_are_no_metrics(tmp_path):
    wandb = pytest.importorskip("wandb", reason="W&B is not installed")
    with start_wandb(wandb, tmp_path, LOGGED[0]) as started:
        started.define_metric("val/*", step_metric="samples")
        for batch in range(4):
            started.log({"loss": batch / 4, "epoch": batch // 2})
        for samples in (64, 128):
            started.log({"val/acc": samples / 256, "samples": samples})
        started.log({"table": wandb.Table(columns=["a"], data=[[1]]), "nested": {"a": {"b": 1}}})
    (log,) = (tmp_path / "wandb").glob("offline-run-*")
    assert points(log, "loss")[0] == {0: 0, 1: 0.25, 2: 0.5, 3: 0.75}
    assert points(log, "val/acc")[0] == {64: 0.25, 128: 0.5}
    assert list(points(log, "loss")[1].finals) == ["loss", "nested.a.b", "val/acc"]
