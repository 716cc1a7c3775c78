"""TensorBoard's event files: the numbers are those of TensorBoard's own reader."""

import os
import struct
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.writer import SummaryWriter

from zoerefine.base.run_dir import RunDir
from zoerefine.lab.runs.metrics import read_metrics
from zoerefine.lab.runs.metrics.event_bytes import masked_crc


def write_scalars(folder, values, tag="val/acc", **options):
    with SummaryWriter(str(folder), **options) as writer:
        for step, value in values.items():
            writer.add_scalar(tag, value, step)


def points(run, name):
    series = read_metrics(run).series[name]
    return dict(zip(series.steps, series.values, strict=True))


def event_file(folder):
    (path,) = folder.rglob("*tfevents*")
    return path


def test_scalars_are_those_of_tensorboards_own_reader(run):
    rng = np.random.default_rng(0)
    with SummaryWriter(str(run.path / "left" / "tb")) as writer:
        for step in [0, 1, 127, 128, 129, 20_000, 2**21, 2**40]:
            for tag in ("loss", "a/very/long/" + 30 * "tag", "ü", "t" * 200):
                writer.add_scalar(tag, rng.normal(), step)
            writer.add_scalar("new", rng.normal(), step, new_style=True)
            writer.add_histogram("weights", rng.normal(size=100), step)
            writer.add_image("picture", rng.random((3, 64, 64)), step)
            writer.add_text("text", "words", step)
    theirs = EventAccumulator(str(run.path / "left" / "tb"), size_guidance={"scalars": 0})
    theirs.Reload()
    metrics = read_metrics(run)
    assert metrics.faults == () and metrics.source == "left/tb"
    assert set(metrics.series) == {*theirs.Tags()["scalars"], "new"}
    for tag in theirs.Tags()["scalars"]:
        assert points(run, tag) == {one.step: one.value for one in theirs.Scalars(tag)}
    assert sorted(points(run, "new")) == sorted(points(run, "loss"))


@given(st.lists(st.tuples(
    st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), st.floats(width=32), st.booleans()
), max_size=30))  # fmt: skip
def test_every_scalar_is_read_back(tmp_path_factory, values):
    run = RunDir(tmp_path_factory.mktemp("run"))
    expected = {}
    with open(run.path / "events.out.tfevents.1", "wb") as file:
        for tag, step, value, timed in values:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            event = Event(step=step, wall_time=1.5 if timed else 0.0, summary=summary)
            RecordWriter(file).write(event.SerializeToString())
            if (tag, step) not in expected or timed:
                expected[tag, step] = value
    metrics = read_metrics(run)
    found = {(tag, step) for tag, one in metrics.series.items() for step in one.steps}
    assert found == {(tag, step) for tag, step, *_ in values}
    assert metrics.faults == ()


def test_values_that_are_not_finite_are_nan(run):
    write_scalars(run.path / "tb", {0: 1.0, 1: float("nan"), 2: float("inf")})
    values = read_metrics(run).series["val/acc"].values
    assert values[0] == 1 and isnan(values[1]) and isnan(values[2])


def test_a_step_that_was_logged_again_has_its_last_value(run):
    write_scalars(run.path / "tb", {1: 0.1, 2: 0.2, 3: 0.3})
    write_scalars(run.path / "tb", {3: 0.25, 4: 0.5}, filename_suffix="resumed")
    assert points(run, "val/acc") == {1: pytest.approx(0.1), 2: pytest.approx(0.2), 3: 0.25, 4: 0.5}


def test_files_are_read_in_the_order_of_the_numbers_in_their_names(run):
    for number in (10, 9, 8):
        write_scalars(run.path / "tb", {1: number})
        (path,) = (p for p in (run.path / "tb").iterdir() if ".host.1." not in p.name)
        path.rename(path.with_name(f"events.out.tfevents.1700000000.host.1.{number}"))
    assert points(run, "val/acc") == {1: 10}


def make_older(folder):
    """Than the last start of the run's job."""
    for path in folder.iterdir():
        os.utime(path, (1, 1))


def test_a_later_attempts_file_goes_on_from_its_first_step(run):
    write_scalars(run.path / "tb", {1: 0.5, 2: 0.5, 3: 0.5, 9: 0.5})
    make_older(run.path / "tb")
    write_scalars(run.path / "tb", {2: 0.25, 3: 0.125}, filename_suffix="again")
    assert points(run, "val/acc") == {1: 0.5, 2: 0.25, 3: 0.125, 9: 0.5}  # of two writers
    run.record(attempt=2)
    assert points(run, "val/acc") == {1: 0.5, 2: 0.25, 3: 0.125}


def test_steps_that_a_resumed_job_discards_are_not_read(run):
    write_scalars(run.path / "tb", {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5})
    write_scalars(run.path / "tb", {3: 0.25}, purge_step=3, filename_suffix="resumed")
    assert points(run, "val/acc") == {1: 0.5, 2: 0.5, 3: 0.25}


def test_equal_tags_of_several_folders_are_named_by_their_folders(run):
    write_scalars(run.path / "left/logs/train", {1: 0.5}, "loss")
    write_scalars(run.path / "left/logs/val", {1: 0.75}, "loss")
    write_scalars(run.path / "left/logs/val", {1: 0.25}, "acc")
    assert points(run, "train/loss") == {1: 0.5}
    assert points(run, "val/loss") == {1: 0.75}
    assert points(run, "acc") == {1: 0.25}


@pytest.mark.parametrize("folders", [
    ("Nov22_16-34-32_host", "Nov22_17-01-10_host"),
    ("version_2", "version_10"),
    ("1700000000.5", "1700000900.25"),
    ("20241126_235900", "20241127_000100"),
    ("exp_2024-11-26_23-59-00", "exp_2024-11-27_00-01-00"),
    ("run-20241126_120000-k3j2h1g0", "run-20241126_130000-a1b2c3d4"),
    ("CartPole-v1__ppo__3__1795533127", "CartPole-v1__ppo__3__1795533999"),
    ("2026-11-25/16-34-32", "2026-11-26/09-01-10"),
    ("20261125-163432", "20261126-090110"),
    ("student_20261125_163432", "student_20261126_090110"),
    ("2026_11_25_16_34_32_fit", "2026_11_26_09_01_10_fit"),
    ("2026-11-25T16:34:32.123456", "2026-11-26T09:01:10.654321"),
    ("2026-11-5 6:34:32", "2026-11-26 9:01:10"),
    ("25-11-2026_16-34", "26-11-2026_09-01"),
    ("mnist_261125_163432", "mnist_261126_090110"),
    ("1125_163432", "1126_090110"),
    ("11-25_16-34", "11-26_09-01"),
    ("offline-run-20261125_163432-ab12cd34", "run-20261126_090110-ef56ab78"),
])  # fmt: skip
def test_folders_named_by_date_or_version_continue_each_other(run, folders):
    for number, folder in enumerate(folders):
        write_scalars(run.path / "left/runs" / folder, {1: 1.0 + number, 3 - number: 3.0})
    assert points(run, "val/acc") == {1: 2.0, 2: 3.0, 3: 3.0}
    make_older(run.path / "left/runs" / folders[0])
    run.record(attempt=2)
    assert points(run, "val/acc") == {1: 2.0, 2: 3.0}  # of the second attempt alone


@pytest.mark.parametrize("folders, names", [
    (("student_224_0.0001_256", "teacher_224_0.0001_256"), None),
    (("r18_224_0.0001_256", "r50_224_0.0001_256"), None),
    (("256-256-10-256", "512-256-10-512"), None),
    (("12345678", "87654321"), None),
    (("user_10000001", "user_10000002"), None),
    (("ab12cd34ef5678", "12ab34cd56ef78"), None),
    (("results_20241126_0", "results_20241126_1"), ("results_time_0", "results_time_1")),
    (("64-32-16", "96-32-16"), None),
    (("20261399", "20261398"), None),
    (("lr_0.00010000", "lr_0.00020000"), None),
    (("2026-11-25_0.1", "2026-11-26_0.2"), ("time_0.1", "time_0.2")),
    (("2026-11-25_16-34-32_256", "2026-11-26_16-34-32_512"), ("time_256", "time_512")),
    (("student_20261125_163432", "teacher_20261125_163433"), ("student_time", "teacher_time")),
    (("ppo__1__1795533127", "ppo__2__1795533127"), ("ppo__1__time", "ppo__2__time")),
    (("Nov22_16-34-32_hostLR_1", "Nov22_16-34-33_hostLR_2"), ("time_hostLR_1", "time_hostLR_2")),
])  # fmt: skip
def test_folders_that_differ_in_more_than_a_time_are_told_apart(run, folders, names):
    for number, folder in enumerate(folders):
        write_scalars(run.path / "left/runs" / folder, {1: 1.0 + number})
    for number, name in enumerate(names or folders):
        assert points(run, f"{name}/val/acc") == {1: 1.0 + number}


def test_an_attempt_on_another_machine_continues_the_first(run, monkeypatch):
    """SummaryWriter puts the machine's name into the folder, with the comment behind it."""
    for number, host in enumerate(("node1", "node2.cluster.org")):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        write_scalars(run.path / f"left/runs/Nov22_16-34-3{number}_{host}LR_1", {number: number})
    assert points(run, "val/acc") == {0: 0, 1: 1}


def test_folders_of_times_that_one_start_of_a_job_filled_are_noted(run):
    """They may be two trainings, and not two attempts of one."""
    for folder, value in (("20261125-163432", 0.25), ("20261126-090110", 0.5)):
        write_scalars(run.path / "left/runs" / folder, {1: value})
    run.record(attempt=1)
    metrics = read_metrics(run)
    assert metrics.final == {"val/acc": 0.5}
    assert metrics.faults == (
        "val/acc begins again in another file or folder that differs in its time or number "
        "(left/runs/20261125-163432, left/runs/20261126-090110) in one attempt of the job: the "
        "last value counts. If they are several trainings, name their folders by more than a time",
    )
    for path in (run.path / "left/runs/20261125-163432").iterdir():
        os.utime(path, (1e9, 1e9))
    run.record(attempt=2)
    assert read_metrics(run).faults == ()


def test_another_training_in_one_folder_is_noted_wherever_it_differs_first(run):
    """Steps of other sizes are read apart."""
    curve = {step: 0.5 for step in range(1, 300, 50)}
    write_scalars(run.path / "tb", curve)
    write_scalars(run.path / "tb", curve | {251: 0.25}, filename_suffix="second")
    run.record(attempt=1)
    assert "the steps of val/acc go back to 251 or come twice" in read_metrics(run).faults[0]


def test_hyperparameters_are_read(run):
    with SummaryWriter(str(run.path / "tb")) as writer:
        writer.add_hparams({"lr": 0.25, "net": "small", "flip": True}, {"best": 0.5})
    metrics = read_metrics(run)
    assert metrics.hyperparameters == {"lr": 0.25, "net": "small", "flip": True}
    assert metrics.final["best"] == 0.5


@given(cut=st.integers(0, 2000))
def test_of_a_file_that_was_cut_off_every_whole_record_is_read(tmp_path_factory, cut):
    run = RunDir(tmp_path_factory.mktemp("run"))
    write_scalars(run.path, {step: step / 4 for step in range(40)})
    path = event_file(run.path)
    data = path.read_bytes()[:cut]
    path.write_bytes(data)
    metrics = read_metrics(run)
    known = metrics.series["val/acc"].values if metrics.series else []
    assert known == [step / 4 for step in range(len(known))]
    is_whole = len(data) in record_ends(data)
    assert bool(metrics.faults) != is_whole
    assert all("cut off at byte" in fault for fault in metrics.faults)


def record_ends(data):
    place, ends = 0, [0]
    while place + 12 <= len(data):
        place += 16 + struct.unpack_from("<Q", data, place)[0]
        ends.append(place)
    return ends


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_named_and_gives_no_wrong_value(tmp_path_factory, place, bit):
    run = RunDir(tmp_path_factory.mktemp("run"))
    write_scalars(run.path, {step: step / 4 for step in range(20)})
    path = event_file(run.path)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1 << bit
    path.write_bytes(data)
    metrics = read_metrics(run)
    for series in metrics.series.values():
        assert series.values == [step / 4 for step in series.steps]
    first_record = record_ends(path.read_bytes())[1]  # the version, which holds no metric
    assert metrics.faults or place % len(data) < first_record


@given(data=st.binary(max_size=400))
def test_any_bytes_give_no_traceback(tmp_path_factory, data):
    run = RunDir(tmp_path_factory.mktemp("run"))
    (run.path / "events.out.tfevents.1").write_bytes(data)
    assert read_metrics(run).series == {}


@given(data=st.binary(max_size=60))
def test_any_record_gives_no_traceback(tmp_path_factory, data):
    run = RunDir(tmp_path_factory.mktemp("run"))
    with open(run.path / "events.out.tfevents.1", "wb") as file:
        RecordWriter(file).write(b"\x09" + data)
    read_metrics(run)


@given(st.integers(0, 200), st.integers(0, 2**32))
def test_the_crc_is_that_of_tensorboard(length, seed):
    texts = [np.random.default_rng(seed + i).bytes(length) for i in range(3)]
    rows = np.frombuffer(b"".join(texts), np.uint8).reshape(3, length)
    assert masked_crc(rows).tolist() == [masked_crc32c(text) for text in texts]


def test_records_longer_than_a_part_of_the_file_are_skipped(run, monkeypatch):
    monkeypatch.setattr("zoerefine.lab.runs.metrics.event_bytes.CHUNK_BYTES", 200)
    monkeypatch.setattr("zoerefine.lab.runs.metrics.event_bytes.LONGEST_RECORD", 100)
    with SummaryWriter(str(run.path / "tb")) as writer:
        for step in range(20):
            writer.add_scalar("loss", step / 4, step)
            writer.add_text("text", "long " * 100, step)
    assert points(run, "loss") == {step: step / 4 for step in range(20)}
    assert read_metrics(run).faults == ()
