"""Training: it learns, it is the same again, and a kill changes nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from zoerefine.config import load_config
from zoerefine.errors import UserError
from zoerefine.files import write_json
from zoerefine.model import BACKBONES
from zoerefine.model.refiner import INPUTS
from zoerefine.registries import NETWORKS
from zoerefine.run_dir import RunDir
from zoerefine.train.checkpoint import (
    CheckpointWriter,
    checkpoint_files,
    load_checkpoint,
    load_refiner,
    save_best,
    set_damaged_aside,
)
from zoerefine.train.job import prepare, run_training
from zoerefine.train.trainer import Trainer

KILLS = int(os.environ.get("ZOEREFINE_TEST_KILLS", "3"))  # 50 take six minutes
SCRIPT = Path(__file__).resolve().parents[2] / "platform" / "train.py"


def train(script, config, name, *overrides):
    done = script("train", "--config", config, "RUN.NAME", name, *overrides)
    assert done.returncode == 0, done.stderr
    return RunDir(Path(done.stdout.strip().splitlines()[-1]))


def test_a_run_holds_everything_the_contract_names(tiny, script):
    run = train(script, tiny, "first")
    assert run.status().state == "finished"
    assert list(run.checkpoints.glob("step-*.pt"))
    assert list(run.tensorboard.glob("events.*"))
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
    refiner = load_refiner(run)
    assert not refiner.training


def test_the_same_configuration_gives_the_same_bits_and_another_seed_others(tiny, script):
    digests = [
        train(script, tiny, name, "SEED", seed).weights_digest_file.read_text()
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_finished_run_is_not_trained_again(tiny, script):
    run = train(script, tiny, "once")
    stamp = run.results_file.stat().st_mtime_ns
    assert train(script, tiny, "once") == run
    assert run.results_file.stat().st_mtime_ns == stamp


def test_training_beats_pseudo_depth_and_global_scale_on_unseen_scenes(tmp_path, script):
    script("data", "synthesize", "world", "--scenes", 12, "--clips", 1, "--frames", 8,
           "--height", 96, "--width", 128)  # fmt: skip
    config = tmp_path / "learn.yaml"
    config.write_text(
        "DATA: {ROOT: world, VAL_FRACTION: 0.0}\nCACHE: {HEIGHT: 48, WIDTH: 64}\n"
        "LOADER: {BATCH: 8}\nMODEL: {BASE: 8}\nTRAIN: {EPOCHS: 32, LR: 5.0e-3, EMA: 0.95}\n"
    )
    run = train(script, config, "learn")
    test = run.read_json(run.results_file)["test"]
    refined = test["refined"]["abs_rel"]
    assert refined < 0.75 * test["pseudo"]["abs_rel"]
    assert refined < 0.8 * test["global_scale"]["abs_rel"]
    # Given another scene's pseudo depth, the gain is gone: it was not learned by heart.
    assert test["shuffled"]["abs_rel"] > test["pseudo"]["abs_rel"]


def untimed(run):
    """The rows of a log without what a clock decides."""
    timed = {"wait_s", "copy_s", "compute_s", "images_per_s", "wait_share"}
    return [{key: row[key] for key in row.keys() - timed} for row in run.metrics()]


def board(run):
    """What TensorBoard shows of the run's losses and figures."""
    shown = EventAccumulator(str(run.tensorboard), {"scalars": 0, "images": 0}).Reload()
    tags = [tag for tag in shown.Tags()["scalars"] if not tag.endswith(("_s", "_share"))]
    scalars = {tag: [(point.step, point.value) for point in shown.Scalars(tag)] for tag in tags}
    pictures = {tag: [one.step for one in shown.Images(tag)] for tag in shown.Tags()["images"]}
    assert len(scalars["train/loss"]) > 0 < len(pictures)
    return scalars, pictures


def kill_at(command, folder, checkpoints, step, later_s):
    """Start a training and kill it a little after a step's checkpoint; True where it lived."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    while process.poll() is None:
        reached = [int(path.name.split("-")[1]) for path in folder.glob(checkpoints)]
        if max(reached, default=0) >= step:
            break
        time.sleep(0.002)
    time.sleep(later_s)
    lived = process.poll() is None
    process.kill()
    process.wait()
    return lived


def test_killed_at_any_moment_it_resumes_to_the_same_bits_and_rows(tiny, script, tmp_path):
    overrides = ["TRAIN.EPOCHS", "12", "TRAIN.CHECKPOINT_S", "0.0"]
    calm = train(script, tiny, "calm", *overrides)
    moments = random.Random(0)
    lived = 0
    for kill in range(KILLS):
        name = f"killed{kill}"
        command = [sys.executable, SCRIPT, "--config", tiny, "RUN.NAME", name, *overrides]
        for step in sorted(moments.sample(range(25), moments.choice([1, 2]))):
            later_s = moments.uniform(0, 0.1 if step else 2)
            checkpoints = f"runs/{name}/*/checkpoints/step-*.pt"
            lived += kill_at(command, tmp_path, checkpoints, step, later_s)
        killed = train(script, tiny, name, *overrides)
        assert killed.weights_digest_file.read_text() == calm.weights_digest_file.read_text()
        assert untimed(killed) == untimed(calm)
        assert board(killed) == board(calm)
        results = [run.read_json(run.results_file) for run in (calm, killed)]
        assert results[0]["test"] == results[1]["test"]
    assert lived


@pytest.mark.parametrize("tier", ["ram", "device"])
def test_every_loader_tier_gives_the_same_bits(tiny, script, tier):
    mapped = train(script, tiny, "mapped", "LOADER.TIER", "mmap")
    placed = train(script, tiny, "placed", "LOADER.TIER", tier)
    assert placed.weights_digest_file.read_text() == mapped.weights_digest_file.read_text()


class Backbone(nn.Module):
    """A network of one layer, before which something is done to its input."""

    stride = 1

    def __init__(self, before):
        super().__init__()
        self.before, self.layer = before, nn.Conv2d(INPUTS, 1, 1)

    def forward(self, inputs):
        return self.layer(self.before(inputs))


@pytest.mark.parametrize("words", [(), ("TRAIN.STEPS", "3")])  # an epoch has two
def test_a_kill_after_the_last_step_adds_none(tiny, script, words):
    run = train(script, tiny, "late", *words)
    digest, rows = run.weights_digest_file.read_text(), untimed(run)
    results = run.read_json(run.results_file)
    run.results_file.unlink()
    assert train(script, tiny, "late", *words) == run
    assert run.weights_digest_file.read_text() == digest
    assert untimed(run) == rows
    assert run.read_json(run.results_file)["test"] == results["test"]


def test_a_kill_after_the_results_leaves_a_run_that_the_same_command_finishes(tiny, script):
    run = train(script, tiny, "closing")
    stamp = run.results_file.stat().st_mtime_ns
    run.set_status("running")
    assert run.status().state == "killed"
    assert train(script, tiny, "closing") == run
    assert run.status().state == "finished"
    assert run.results_file.stat().st_mtime_ns == stamp


def test_a_network_that_draws_resumes_to_the_same_bits(tiny, monkeypatch):
    monkeypatch.setitem(BACKBONES, "drawing", lambda base: Backbone(nn.Dropout(0.5)))
    monkeypatch.setitem(NETWORKS._places, "drawing", "")
    cfg = load_config(tiny, ["MODEL.NAME", "drawing"])
    cache, split = prepare(cfg)
    calm, killed, resumed = (Trainer(cfg, cache, split) for _ in range(3))
    batches = list(calm.prefetch(calm.loader))
    for batch in batches:
        calm.step_once(batch)
    killed.step_once(batches[0])
    torch.rand(100)  # whoever else draws does not matter
    resumed.restore(killed.state())
    resumed.step_once(batches[1])
    ours, theirs = (one.refiner.state_dict() for one in (resumed, calm))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_an_operation_that_cannot_repeat_its_bits_is_named(tiny, monkeypatch):
    def shuffle(values):
        index = torch.arange(values.numel())
        return torch.zeros_like(values).put_(index, values.flatten(), accumulate=False)

    monkeypatch.setitem(BACKBONES, "shuffling", lambda base: Backbone(shuffle))
    monkeypatch.setitem(NETWORKS._places, "shuffling", "")
    words = ["MODEL.NAME", "shuffling", "RUN.NAME", "shuffling", "TRAIN.PRECISION", "fp32"]
    with pytest.raises(UserError, match=r"put_ cannot repeat its bits.*TRAIN\.DETERMINISTIC false"):
        run_training(load_config(tiny, words))


def test_a_signal_stops_with_a_checkpoint_and_the_same_command_goes_on(tiny, tmp_path, wait_until):
    overrides = ["TRAIN.EPOCHS", "400"]
    command = [sys.executable, SCRIPT, "--config", tiny, "RUN.NAME", "stopped", *overrides]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(tmp_path.glob("runs/stopped/*/checkpoints/best.safetensors")), process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again" in errors
    (folder,) = (tmp_path / "runs" / "stopped").iterdir()
    assert RunDir(folder).status().state == "killed"
    step = load_checkpoint(RunDir(folder).checkpoints)["step"]
    assert step > 0


def test_a_loss_that_is_no_number_stops_with_the_frames_names(tiny, script, tmp_path):
    words = ["TRAIN.LR", "1e30", "TRAIN.CLIP", "1e30", "TRAIN.WARMUP", "0.0", "TRAIN.EPOCHS", "20",
             "TRAIN.PRECISION", "fp32", "TRAIN.CHECKPOINT_S", "0.0"]  # fmt: skip
    cache, split = prepare(cfg := load_config(tiny, words))
    trainer = Trainer(cfg, cache, split)
    for _ in range(2):  # a second time, from a checkpoint that the loss has not spoiled
        done = script("train", "--config", tiny, "RUN.NAME", "nan", *words)
        assert done.returncode == 2
        assert "look at the frames" in done.stderr
        (folder,) = (tmp_path / "runs" / "nan").iterdir()
        found = json.loads((folder / "not_finite.json").read_text())
        epoch, batch = trainer.sampler.locate(found["step"] - 1)
        indices = sorted(trainer.sampler.order(epoch).batch(batch))
        assert found["frames"] == [cache.frame_name(int(index)) for index in indices]
        assert RunDir(folder).status().state == "failed"
        assert load_checkpoint(RunDir(folder).checkpoints)["step"] < found["step"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["MODEL.NAMEE", "x"], "no config key MODEL.NAMEE; did you mean MODEL.NAME?"),
        (["TRAIN.LR", "fast"], "TRAIN.LR must be a number"),
        (["DATA.ROOT", "absent"], "no data folder"),
        (["DATA.ROOT", ""], "DATA.ROOT is empty"),
        (["TRAIN.PRECISION", "int3"], "TRAIN.PRECISION must be"),
        (["TRAIN.LOG_EVERY", "0"], "TRAIN.LOG_EVERY must be an integer of at least 1"),
        (["TRAIN.CLIP", "0.0"], "TRAIN.CLIP must be a number above 0"),
        (["TRAIN.COMPILE", "reduce-overhead", "TRAIN.ACCUMULATE", "2"], "set TRAIN.ACCUMULATE 1"),
        (["TRAIN.COMPILE", "max-autotune"], "set TRAIN.DETERMINISTIC false"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tiny, script, words, message):
    done = script("train", "--config", tiny, *words)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert message in errors[0]


def test_a_picture_cut_short_stops_packing_and_is_named(tiny, script, world, tmp_path):
    import shutil

    shutil.copytree(world, tmp_path / "world")
    path = next((tmp_path / "world" / "zoe_depth_raw").rglob("*.png"))
    os.truncate(path, 100)
    done = script("train", "--config", tiny, "DATA.ROOT", "world")
    assert done.returncode == 2
    assert path.name in done.stderr
    assert "cut short" in done.stderr
    assert not list(tmp_path.glob("caches/*/cache.json"))


def test_a_damaged_checkpoint_is_passed_over(tmp_path, capsys):
    writer = CheckpointWriter(tmp_path, 2)
    for step in (1, 2, 3):
        writer.save(step, {"step": step, "weights": torch.full((1000,), float(step))})
    writer.wait()
    newest, older = checkpoint_files(tmp_path)
    data = bytearray(newest.read_bytes())
    data[2000] ^= 1
    newest.write_bytes(data)
    assert load_checkpoint(tmp_path)["step"] == 2
    assert "is damaged" in capsys.readouterr().err
    set_damaged_aside(tmp_path, 2)
    assert newest.with_suffix(".damaged").exists()
    assert checkpoint_files(tmp_path) == [older]  # which new ones may outlive now
    assert load_checkpoint(tmp_path)["step"] == 2
    older.write_bytes(b"")
    assert load_checkpoint(tmp_path) is None


def test_altered_weights_are_refused(tiny, script):
    run = train(script, tiny, "altered")
    run.weights_digest_file.write_text("0" * 64)
    with pytest.raises(UserError, match="it was altered"):
        load_refiner(run)


def test_weights_of_another_version_name_its_commit(tiny, script):
    run = train(script, tiny, "older")
    write_json(run.provenance_file, run.read_json(run.provenance_file) | {"commit": "0ld"})
    weights = load_refiner(run).state_dict()
    first = "backbone.down.0.0.weight"
    save_best(run, weights | {first: weights[first][:, :4]})
    with pytest.raises(UserError, match="another version's refiner: use that of its commit, 0ld"):
        load_refiner(run)
