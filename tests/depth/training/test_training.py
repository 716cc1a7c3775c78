"""Training: it learns, repeats its bits, and resumes exactly after a kill at any moment."""

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

from tests.depth.training.conftest import rows
from tests.processes import kills
from tests.verb_server import run_verb
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_json
from zoerefine.base.files.images import write_png
from zoerefine.base.run_dir import RunDir
from zoerefine.cli import main
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.pictures import LABEL_HEIGHT
from zoerefine.depth.training import checkpoint
from zoerefine.depth.training.ending import StopSignals
from zoerefine.depth.training.job import find_data, run_training
from zoerefine.depth.training.run_log import RunLog

KILLS = kills(1)  # 52 took 15 minutes beside a load of 20, 58 five minutes without
SCRIPT = Path(__file__).resolve().parents[3] / "platform" / "train.py"


def digest(run):
    return run.weights_digest_file.read_text()


def test_a_run_holds_everything_the_contract_names(finished):
    run = finished
    assert run.status().state == "finished"
    assert list(run.checkpoints.glob("step-*.pt"))
    results = run.read_json(run.results_file)
    assert results["schema"] == 1
    assert "synthetic" in results["data"]
    for split in ("val", "test"):
        assert set(results[split]) >= {"pseudo", "refined", "global_scale"}
        assert results[split]["refined"]["abs_rel"] > 0
    assert results["untrained_max_change_m"] == 0
    assert set(results["test_scenes"]) == set(results["scenes"]["test"])
    row = next(row for row in run.metrics() if row["phase"] == "train")
    assert {"wait_s", "copy_s", "compute_s", "images_per_s", "wait_share", "lr"} <= set(row)
    known = run.read_json(run.provenance_file)
    assert {"commit", "dataset_digest", "cache_digest", "torch", "seed"} <= set(known)
    assert not checkpoint.load_refiner(run).training


def test_tensorboard_shows_losses_metrics_pictures_and_histograms(finished):
    shown = EventAccumulator(str(finished.tensorboard)).Reload().Tags()
    # The loss and its terms are logged of validation scenes as of training.
    assert {"eval/loss", "eval/l1_log", "train/loss", "train/l1_log", "train/lr", "train/grad_norm",
            "train/images_per_s", "train/wait_share", "eval/abs_rel/refined", "eval/abs_rel/pseudo",
            "eval/abs_rel/ratio"} <= set(shown["scalars"])  # fmt: skip
    assert all(tag.startswith("eval/scene") for tag in shown["images"])
    assert len(shown["images"]) == 3
    name = "backbone.down.0.0.weight"
    assert {f"weights/{name}", f"gradients/{name}"} <= set(shown["histograms"])


def test_tensorboard_opens_on_validation_metrics(finished):
    shown = EventAccumulator(str(finished.tensorboard), {"tensors": 0}).Reload()
    first = sorted(shown.Tags()["scalars"])[:3]
    assert first == ["eval/abs_rel/pseudo", "eval/abs_rel/ratio", "eval/abs_rel/refined"]
    (event,) = shown.Tensors("custom_scalars__config__")
    layout = Layout.FromString(event.tensor_proto.string_val[0])
    assert [category.title for category in layout.category] == ["Validation", "Training"]
    drawn = [tag for one in layout.category for chart in one.chart for tag in chart.multiline.tag]
    assert set(drawn) <= set(shown.Tags()["scalars"])


def test_the_pictures_in_tensorboard_have_the_names_of_their_columns(finished):
    shown = EventAccumulator(str(finished.tensorboard), {"images": 0}).Reload()
    picture = shown.Images(shown.Tags()["images"][0])[0]
    assert picture.width % 6 == 0 and picture.width >= 6 * 160
    encoded = np.frombuffer(picture.encoded_image_string, np.uint8)
    header = cv2.imdecode(encoded, cv2.IMREAD_COLOR)[:LABEL_HEIGHT]
    for name in np.split(header, 6, 1):
        assert (name > 200).any() and (name < 60).any()  # light text on dark


@pytest.mark.numeric
@pytest.mark.parametrize("tier", ["mmap", "ram", "device"])
def test_another_process_and_every_loader_tier_give_the_same_bits(finished, train, tier):
    run = train("TRAIN.PRECISION", "fp32", "LOADER.TIER", tier)
    assert digest(run) == digest(finished)


def test_another_seed_gives_other_weights(finished, train):
    assert digest(train("TRAIN.PRECISION", "fp32", "SEED", 1)) != digest(finished)


def test_a_finished_run_is_not_trained_again(finished):
    stamp = finished.results_file.stat().st_mtime_ns
    assert run_training(load_config(finished.config_file)) == finished
    assert finished.results_file.stat().st_mtime_ns == stamp


@pytest.mark.numeric
def test_training_beats_pseudo_depth_and_global_scale_on_held_out_scenes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "synthesize", "world", "--scenes", "24", "--clips", "1", "--frames", "3",
                 "--height", "48", "--width", "64"]) == 0  # fmt: skip
    config = tmp_path / "learn.yaml"
    config.write_text(
        "DATA: {ROOT: world, VAL_FRACTION: 0.0, TEST_FRACTION: 0.2}\n"
        "CACHE: {HEIGHT: 24, WIDTH: 32}\nLOADER: {BATCH: 16}\nMODEL: {NAME: guided, BASE: 8}\n"
        "TRAIN: {EPOCHS: 40, LR: 5.0e-3, EMA: 0.95, PRECISION: fp32}\n"
    )
    run = run_training(load_config(config))
    test = run.read_json(run.results_file)["test"]
    refined = test["refined"]["abs_rel"]
    assert refined < 0.75 * test["pseudo"]["abs_rel"]
    assert refined < 0.8 * test["global_scale"]["abs_rel"]
    # It uses the pseudo depth: with another scene's, the gain is lost.
    assert test["shuffled"]["abs_rel"] > test["pseudo"]["abs_rel"]


def test_every_picture_gets_another_scenes_depth_also_of_few_training_frames(trainer):
    one = trainer("DATA.TEST_FRACTION", 0.5, "DATA.VAL_FRACTION", 0.25, "LOADER.BATCH", 3)
    assert len(one.cache.indices(one.split.train)) < len(one.cache.indices(one.split.test))
    seen = []
    one.weights.register_forward_hook(lambda network, inputs, output: seen.extend(output))
    one.evaluate_shuffled(one.split.test)
    assert len(seen) == len(one.cache.indices(one.split.test))


def untimed(run):
    """The rows of a log without times."""
    timed = {"wait_s", "copy_s", "compute_s", "images_per_s", "wait_share"}
    return [{key: row[key] for key in row.keys() - timed} for row in run.metrics()]


def board(run):
    """The losses, metrics and pictures in TensorBoard."""
    shown = EventAccumulator(str(run.tensorboard), {"scalars": 0, "images": 0}).Reload()
    tags = [tag for tag in shown.Tags()["scalars"] if not tag.endswith(("_s", "_share"))]
    scalars = {tag: [(point.step, point.value) for point in shown.Scalars(tag)] for tag in tags}
    pictures = {tag: [one.step for one in shown.Images(tag)] for tag in shown.Tags()["images"]}
    assert len(scalars["train/loss"]) > 0 < len(pictures)
    return scalars, pictures


def test_killed_at_any_moment_it_resumes_to_the_same_bits_and_rows(train, tiny, tmp_path):
    overrides = ["TRAIN.EPOCHS", "4", "TRAIN.CHECKPOINT_S", "0.0"]  # a checkpoint a step
    uninterrupted = train(*overrides, name="uninterrupted")
    moments = random.Random(0)
    made = round_ = 0
    words = ["train", "--config", tiny, *overrides, "RUN.NAME"]
    usual = run_verb([*words, "usual"], tmp_path).seconds
    while made < KILLS:
        name, round_ = f"killed{round_}", round_ + 1
        for _ in range(min(moments.choice([3, 4, 5]), KILLS - made)):
            wait_s = moments.uniform(0, 0.6 * usual)
            made += run_verb([*words, name], tmp_path, kill_after=wait_s).code < 0
        killed = train(*overrides, name=name)
        assert digest(killed) == digest(uninterrupted)
        assert untimed(killed) == untimed(uninterrupted)
        assert board(killed) == board(uninterrupted)
        tests = [run.read_json(run.results_file)["test"] for run in (uninterrupted, killed)]
        assert tests[0] == tests[1]


def test_curves_go_on_where_the_clock_was_set_back_before_a_resume(tmp_path):
    run = RunDir(tmp_path)
    for done, ahead_s in ((0, 0), (2, 86400), (4, 86300), (6, 0), (8, 0)):
        log = RunLog(run, step=done)
        log.write("train", done + 1, 0, {"loss": 1.0})
        log.write("train", done + 2, 0, {"loss": 1.0})
        log.close()
        path = max(run.tensorboard.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        if ahead_s:  # as the wrong clock would have named it
            seconds = path.name.split(".")[3]
            path.rename(path.with_name(path.name.replace(seconds, str(int(seconds) + ahead_s), 1)))
    shown = EventAccumulator(str(run.tensorboard)).Reload().Scalars("train/loss")
    assert [point.step for point in shown] == list(range(1, 11))


@pytest.mark.parametrize("words", [(), ("TRAIN.STEPS", "3")])  # an epoch has two
def test_a_kill_after_the_last_step_adds_no_step(train, words):
    run = train(*words)
    before, rows_before = digest(run), untimed(run)
    results = run.read_json(run.results_file)
    run.results_file.unlink()
    assert train(*words) == run
    assert digest(run) == before
    assert untimed(run) == rows_before
    assert run.read_json(run.results_file)["test"] == results["test"]


def test_results_say_how_far_the_pseudo_depth_of_the_training_scenes_was(finished, world):
    results = finished.results()
    frames = [f for f in open_dataset(world).frames if f.scene in results["scenes"]["train"]]
    zoe_u16 = np.concatenate([read_zoe(frame.zoe).ravel() for frame in frames])
    expected_m = np.quantile(zoe_u16[zoe_u16 > 0], 0.999) / 256
    assert results["pseudo_far_m"] == pytest.approx(expected_m, rel=0.3)  # of resized pictures


def test_a_resume_with_another_number_of_threads_is_named(train, capsys):
    run, threads = train(), torch.get_num_threads()
    run.results_file.unlink()
    torch.set_num_threads(threads + 1)
    try:
        assert train() == run
    finally:
        torch.set_num_threads(threads)
    line = f" on its processor and goes on with {threads + 1}, or did so before: its weights are "
    assert line in capsys.readouterr().err
    assert run.results()["threads"] == [threads, threads + 1]
    run.results_file.unlink()
    assert train() == run  # no step was taken meanwhile
    assert "on its processor" not in capsys.readouterr().err


def test_a_kill_after_the_results_leaves_a_run_that_the_same_command_finishes(train):
    run = train()
    stamp = run.results_file.stat().st_mtime_ns
    run.set_status("running")
    assert run.status().state == "killed"
    assert train() == run
    assert run.status().state == "finished"
    assert run.results_file.stat().st_mtime_ns == stamp


@pytest.mark.numeric
def test_a_network_with_dropout_resumes_to_the_same_bits(trainer):
    uninterrupted, killed, resumed = (
        trainer("MODEL.NAME", "tests.depth.training.networks:Dropping") for _ in range(3)
    )
    batches = list(uninterrupted.prefetch(uninterrupted.loader))
    for batch in batches:
        uninterrupted.train_step(batch)
    killed.train_step(batches[0])
    torch.rand(100)  # other use of the generator does not matter
    resumed.restore(killed.state())
    resumed.train_step(batches[1])
    ours, theirs = (one.refiner.state_dict() for one in (resumed, uninterrupted))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_nondeterministic_operation_is_named(train):
    with pytest.raises(UserError, match=r"^put_ is not deterministic.*TRAIN\.DETERMINISTIC false"):
        train("MODEL.NAME", "tests.depth.training.networks:Scattering", "TRAIN.PRECISION", "fp32")


def test_a_signal_stops_with_a_checkpoint_and_the_same_command_resumes(tiny, tmp_path, wait_until):
    overrides = ["TRAIN.EPOCHS", "400"]
    command = [sys.executable, SCRIPT, "--config", tiny, "RUN.NAME", "stopped", *overrides]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    best = "runs/stopped/*-*/checkpoints/best.safetensors"
    wait_until(lambda: list(tmp_path.glob(best)), process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "run the same command again" in errors
    (folder,) = tmp_path.glob("runs/stopped/*-*")
    assert RunDir(folder).status().state == "killed"
    assert checkpoint.load_checkpoint(RunDir(folder).checkpoints)["step"] > 0


def test_a_second_ctrl_c_stops_at_once_and_a_second_sigterm_does_not():
    with StopSignals() as stops:
        signal.raise_signal(signal.SIGTERM)  # Slurm's
        signal.raise_signal(signal.SIGTERM)  # torchrun's
        assert stops.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_non_finite_loss_stops_with_the_names_of_the_frames(trainer, train, tmp_path):
    words = ["TRAIN.LR", "1e30", "TRAIN.CLIP", "1e30", "TRAIN.WARMUP", "0.0", "TRAIN.EPOCHS", "20",
             "TRAIN.PRECISION", "fp32", "TRAIN.CHECKPOINT_S", "0.0"]  # fmt: skip
    reference = trainer(*words)
    for _ in range(2):  # the second time from a checkpoint, which holds finite weights
        with pytest.raises(UserError, match="look at the frames"):
            train(*words, name="nan")
        (folder,) = tmp_path.glob("runs/nan/*-*")
        found = json.loads((folder / "not_finite.json").read_text())
        epoch, batch = reference.sampler.locate(found["step"] - 1)
        indices = sorted(reference.sampler.order(epoch).batch(batch))
        assert found["frames"] == [reference.cache.frame_name(int(index)) for index in indices]
        assert RunDir(folder).status().state == "failed"
        assert checkpoint.load_checkpoint(RunDir(folder).checkpoints)["step"] < found["step"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["MODEL.NAMEE", "x"], "no config key MODEL.NAMEE; did you mean MODEL.NAME?"),
        (["TRAIN.LR", "fast"], "TRAIN.LR must be"),
        (["DATA.ROOT", "absent"], "no data folder"),
        (["DATA.ROOT", ""], "DATA.ROOT is empty"),
        (["DATA.ROOT", "."], "is no data set: it has none of "),
        (["TRAIN.COMPILE", "reduce-overhead", "TRAIN.ACCUMULATE", "2"], "set TRAIN.ACCUMULATE 1"),
        (["TRAIN.COMPILE", "max-autotune"], "set TRAIN.DETERMINISTIC false"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2_and_nothing_is_written(
    tiny, capsys, tmp_path, words, message
):
    assert main(["train", "--config", str(tiny), *words]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert message in errors[0]
    assert list(tmp_path.iterdir()) == [tiny]


def test_a_damaged_checkpoint_is_skipped(tmp_path, capsys):
    writer = checkpoint.CheckpointWriter(tmp_path, 2, 60)
    for step in (1, 2, 3):
        writer.save(step, {"step": step, "weights": torch.full((1000,), float(step))})
    writer.wait()
    newest, older = checkpoint.checkpoint_files(tmp_path)
    data = bytearray(newest.read_bytes())
    data[2000] ^= 1
    newest.write_bytes(data)
    assert checkpoint.load_checkpoint(tmp_path)["step"] == 2
    assert "is damaged" in capsys.readouterr().err
    checkpoint.rename_damaged(tmp_path, {"step": 2})
    assert newest.with_suffix(".damaged").exists()
    assert checkpoint.checkpoint_files(tmp_path) == [older]
    assert checkpoint.load_checkpoint(tmp_path)["step"] == 2
    older.write_bytes(b"")
    assert checkpoint.load_checkpoint(tmp_path) is None


def test_weights_of_another_version_name_its_commit(copied):
    write_json(copied.provenance_file, copied.read_json(copied.provenance_file) | {"commit": "0ld"})
    weights = checkpoint.load_refiner(copied).state_dict()
    first = "backbone.down.0.0.weight"
    checkpoint.save_best(copied, weights | {first: weights[first][:, :4]})
    with pytest.raises(UserError, match=r"does not fit this version's refiner.*commit, 0ld"):
        checkpoint.load_refiner(copied)


def test_every_epoch_is_logged_once(finished):
    assert [row["step"] for row in rows(finished, "train")] == [1, 2, 3, 4]
    assert [row["epoch"] for row in rows(finished, "val")] == [0, 1]
    for name in ("loss", "l1_log", "gradient"):
        assert all(row[name] > 0 for row in (*rows(finished, "val"), *rows(finished, "train")))


def test_a_training_by_itself_leaves_its_log_and_the_link_to_the_latest(finished):
    log = finished.log_file.read_text()
    assert "epoch 2/2" in log and "test scene" in log and "\r" not in log
    assert "refined, from another scene's pseudo depth" in log  # the table at its end
    assert (finished.path.parent / "latest").resolve() == finished.path.resolve()


def test_the_log_of_a_failed_training_names_the_error(tiny, tmp_path, script):
    done = script("train", "--config", tiny, "TRAIN.LR", "1e30", code=2)
    (log,) = tmp_path.glob("runs/tiny/*-*/log.txt")
    assert done.stderr.splitlines()[-1] in log.read_text().splitlines()


@pytest.mark.parametrize("part", ["val", "train"])
def test_scenes_without_a_usable_pixel_are_one_line_before_training(tiny, world, tmp_path, part):
    root = shutil.copytree(world, tmp_path / "far")
    cfg = load_config(tiny, ["DATA.ROOT", str(root)])
    _, split = find_data(cfg)
    for frame in open_dataset(root).frames:
        if frame.scene in getattr(split, part):  # 10 m or more
            write_png(frame.depth, np.full((48, 64), 255, np.uint8))
    with pytest.raises(UserError, match=r"has a true depth of 0\.001 to 10 m"):
        run_training(cfg)
    assert not list(tiny.parent.glob("runs/*/*/metrics.jsonl"))


def test_an_interrupted_training_leaves_no_thread_and_goes_on_in_the_same_process(
    train, monkeypatch
):
    whole = train(name="whole")
    before = set(threading.enumerate())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunLog, "picture", lambda *_: signal.raise_signal(signal.SIGINT))
        train()
    assert set(threading.enumerate()) <= before
    assert train().weights_digest_file.read_text() == whole.weights_digest_file.read_text()
