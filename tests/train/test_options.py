"""What a training may be told: steps, accumulation, precision, patience, compilation, weights."""

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from zoerefine.config import load_config
from zoerefine.errors import UserError
from zoerefine.model import build_refiner
from zoerefine.run_dir import RunDir
from zoerefine.train.checkpoint import load_checkpoint
from zoerefine.train.job import prepare
from zoerefine.train.loop import Loop
from zoerefine.train.pretrained import load_pretrained
from zoerefine.train.trainer import Trainer

# CUDA graphs are of GPUs; on a CPU the mode is the default one's.
COMPILED = ["default", "reduce-overhead"] if torch.cuda.is_available() else ["default"]


@pytest.fixture
def trained(script, tiny, tmp_path):
    """Train the tiny configuration with other words: trained("LOSS.X", 1) -> run."""

    def train(*words):
        done = script("train", "--config", tiny, *words)
        assert done.returncode == 0, done.stderr
        return RunDir(tmp_path / done.stdout.splitlines()[-1])

    return train


def rows(run, phase):
    found = map(json.loads, run.metrics_file.read_text().splitlines())
    return [row for row in found if row["phase"] == phase]


def test_a_run_ends_after_so_many_steps(trained):
    run = trained("TRAIN.STEPS", 3)  # an epoch has two
    assert [row["step"] for row in rows(run, "train")] == [1, 2, 3]
    assert len(rows(run, "val")) == 2
    assert all(row["grad_norm"] > 0 for row in rows(run, "train"))


def test_another_optimizer_trains_too(trained):
    losses = [row["loss"] for row in rows(trained("TRAIN.OPTIMIZER", "sgd", "TRAIN.LR", 0.05,
              "TRAIN.EPOCHS", 8), "train")]  # fmt: skip
    assert losses[-1] < losses[0]


def test_a_run_without_gain_ends_early(trained):
    # Nothing is learned: only the statistics of batch norm move, and they soon settle.
    run = trained("TRAIN.PATIENCE", 2, "TRAIN.EPOCHS", 60, "TRAIN.LR", 0.0)
    found = [row["refined"]["abs_rel"] for row in rows(run, "val")]
    assert len(found) < 60
    stale, ends = 0, []
    for number, value in enumerate(found, 1):
        stale = stale + 1 if value >= min(found[: number - 1], default=math.inf) else 0
        ends.append(stale == 2)
    assert ends == [False] * (len(found) - 1) + [True]
    assert run.read_json(run.results_file)["stopped_early"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_trains_to_nearly_the_same_loss(trained, precision):
    full = trained("TRAIN.PRECISION", "fp32")
    mixed = trained("TRAIN.PRECISION", precision)
    for ours, theirs in zip(rows(mixed, "train"), rows(full, "train"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.05)


def test_accumulated_parts_give_the_mean_of_their_losses(tiny):
    cache, split = prepare(load_config(tiny))
    trainers = [
        Trainer(load_config(tiny, ["TRAIN.ACCUMULATE", n, "TRAIN.PRECISION", "fp32"]), cache, split)
        for n in ("1", "2")
    ]
    for trainer in trainers:  # batch statistics would differ between a batch and its parts
        trainer.refiner.eval()
        trainer.refiner.trained.fill_(True)
    batch = next(trainers[0].some_training_pictures())
    whole = [trainers[0].backward(part)[0] for part in batch.split(2)]
    trainers[1].backward(batch)
    assert len(whole) == 2
    grads = [
        [p.grad for p in trainer.refiner.parameters() if p.grad is not None] for trainer in trainers
    ]
    assert all(one.any() for one in grads[0])
    for one, two in zip(*grads, strict=True):
        torch.testing.assert_close(one / 2, two, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("most", [0.25, 0.9, 0.0])
def test_weights_are_averaged_over_few_steps_at_first_and_the_averaged_ones_kept(tiny, most):
    cache, split = prepare(cfg := load_config(tiny, ["TRAIN.EMA", str(most)]))
    trainer = Trainer(cfg, cache, split)
    name = "backbone.down.0.0.weight"
    batch = next(trainer.some_training_pictures())
    expected = torch.tensor(0.0)
    for step in range(4):
        trainer.step_once(batch)
        now = trainer.refiner.state_dict()[name].clone()
        decay = min(most, (1 + step) / (10 + step))  # .1, .18, .25, .31
        expected = decay * expected + (1 - decay) * now if step else now
    averaged = trainer.weights.state_dict()
    torch.testing.assert_close(averaged[name], expected)
    assert torch.equal(expected, now) == (most == 0)
    assert averaged["trained"]
    assert averaged["backbone.down.0.1.num_batches_tracked"] == 4


def test_a_gradient_that_is_no_number_stops_before_it_is_kept(tiny, tmp_path):
    words = ["TRAIN.PRECISION", "fp32", "TRAIN.CHECKPOINT_S", "0.0"]
    cache, split = prepare(cfg := load_config(tiny, words))
    trainer, run = Trainer(cfg, cache, split), RunDir(tmp_path / "run")
    loop = Loop(cfg, run, trainer, None)
    first = trainer.refiner.get_parameter("backbone.down.0.0.weight")
    first.register_hook(lambda gradient: gradient * (math.inf if trainer.step == 1 else 1))
    with pytest.raises(UserError, match=r"the gradient's norm of step 2 is (nan|inf): look at"):
        loop.run_epochs()
    assert run.read_json(run.path / "not_finite.json")["step"] == 2
    loop.writer.wait()
    assert load_checkpoint(run.checkpoints)["step"] == 1


@pytest.mark.parametrize("lasting", [False, True])
def test_fp16_stops_only_at_gradients_that_overflow_at_any_scale(tiny, tmp_path, lasting):
    words = ["TRAIN.PRECISION", "fp16", "TRAIN.EPOCHS", "18", "TRAIN.EVAL_EVERY", "18"]
    cache, split = prepare(cfg := load_config(tiny, words))
    trainer, run = Trainer(cfg, cache, split), RunDir(tmp_path / "run")
    loop = Loop(cfg, run, trainer, None)
    first = trainer.refiner.get_parameter("backbone.down.0.0.weight")
    first.register_hook(lambda g: g * (math.inf if lasting or trainer.step == 1 else 1))
    if not lasting:
        loop.run_epochs()
        assert trainer.step == 36
        return
    with pytest.raises(UserError, match="the gradient's norm of step"):
        loop.run_epochs()
    assert 30 <= run.read_json(run.path / "not_finite.json")["step"] <= 33


def test_gradients_are_clipped_to_their_norm(tiny):
    words = ["TRAIN.CLIP", "1e-3", "TRAIN.OPTIMIZER", "sgd", "TRAIN.MOMENTUM", "0.0",
             "TRAIN.WEIGHT_DECAY", "0.0", "TRAIN.SCHEDULE", "constant", "TRAIN.WARMUP", "0.0",
             "TRAIN.LR", "1.0", "TRAIN.PRECISION", "fp32"]  # fmt: skip
    cache, split = prepare(cfg := load_config(tiny, words))
    trainer = Trainer(cfg, cache, split)

    def weights():
        return torch.cat([part.detach().flatten() for part in trainer.refiner.parameters()])

    before = weights()
    trainer.step_once(next(trainer.some_training_pictures()))
    assert trainer.grad_norm > 1e-3  # as it was
    assert (weights() - before).norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_a_step_whose_gradients_overflow_changes_no_weights(tiny):
    cache, split = prepare(cfg := load_config(tiny, ["TRAIN.PRECISION", "fp16"]))
    trainer = Trainer(cfg, cache, split)
    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)
    before = [weights.clone() for weights in trainer.refiner.parameters()]
    trainer.step_once(next(trainer.some_training_pictures()))
    for ours, theirs in zip(trainer.refiner.parameters(), before, strict=True):
        assert torch.equal(ours, theirs)
    assert trainer.scaler.get_scale() == 2.0**59


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU can be waited for")
def test_a_step_does_not_wait_for_the_gpu(tiny):
    cache, split = prepare(cfg := load_config(tiny))
    trainer = Trainer(cfg, cache, split)
    batch = next(trainer.some_training_pictures())
    trainer.step_once(batch)  # the first makes the optimiser's state
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.step_once(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_tensorboard_shows_what_a_run_is_watched_by(trained):
    run = trained("TRAIN.HISTOGRAMS", "true")
    shown = EventAccumulator(str(run.tensorboard)).Reload().Tags()
    assert {"train/loss", "train/l1_log", "train/lr", "train/grad_norm", "train/images_per_s",
            "train/wait_share", "val/refined/abs_rel", "val/pseudo/abs_rel",
            "val/ratio/abs_rel"} <= set(shown["scalars"])  # fmt: skip
    assert all(tag.startswith("val/scene") for tag in shown["images"])
    assert len(shown["images"]) == 3
    name = "backbone.down.0.0.weight"
    assert {f"weights/{name}", f"gradients/{name}"} <= set(shown["histograms"])


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("mode", COMPILED)
def test_a_compiled_refiner_trains_to_nearly_the_same_loss(trained, mode):
    words = ("TRAIN.PRECISION", "fp32", "TRAIN.STEPS", 3, "LOADER.BATCH", 3)  # and one of two
    plain, made = trained(*words), trained(*words, "TRAIN.COMPILE", mode)
    for ours, theirs in zip(rows(made, "train"), rows(plain, "train"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


def resnet18(classes=10):
    """Weights with torchvision's names and shapes, from its own naming rules."""
    weights = {"conv1.weight": (64, 3, 7, 7), "fc.weight": (classes, 512), "fc.bias": (classes,)}
    norms = {"bn1": 64}
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            name = f"layer{stage}.{block}"
            weights |= {f"{name}.conv1.weight": (width, inputs, 3, 3),
                        f"{name}.conv2.weight": (width, width, 3, 3)}  # fmt: skip
            norms |= {f"{name}.bn1": width, f"{name}.bn2": width}
            if inputs != width:
                weights[f"{name}.downsample.0.weight"] = (width, inputs, 1, 1)
                norms[f"{name}.downsample.1"] = width
            inputs = width
    for name, width in norms.items():
        for part in ("weight", "bias", "running_mean", "running_var"):
            weights[f"{name}.{part}"] = (width,)
    torch.manual_seed(0)
    return {name: 0.1 * torch.rand(shape) for name, shape in weights.items()}


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_imagenet_weights_load_by_torchvisions_names(tmp_path, ending):
    weights = resnet18()
    path = tmp_path / f"resnet18.{ending}"
    torch.save(weights, path) if ending == "pth" else save_file(weights, path)
    refiner = build_refiner("unet", 64, 1.0)
    load_pretrained(refiner, path)
    ours = refiner.backbone.state_dict()
    for name, value in weights.items():
        if name == "conv1.weight":
            assert torch.equal(ours[name][:, :3], value)
            assert torch.equal(ours[name][:, 3], value.mean(1))
            assert not ours[name][:, 4].any()
        elif not name.startswith("fc."):
            assert torch.equal(ours[name], value), name
    rgb, zoe = torch.rand(1, 3, 64, 64), torch.rand(1, 1, 64, 64) + 1
    assert torch.equal(refiner.eval()(rgb, zoe), zoe)  # still returns its input


def test_weights_that_do_not_fit_are_named(tmp_path):
    torch.save(resnet18(), tmp_path / "r.pth")
    with pytest.raises(UserError, match=r"does not fit the refiner.*MODEL\.BASE 64"):
        load_pretrained(build_refiner("unet", 32, 1.0), tmp_path / "r.pth")
    torch.save({"net": 3}, tmp_path / "x.pth")
    for name, words in (("x.pth", "something else"), ("none.pth", "no such file")):
        with pytest.raises(UserError, match=words):
            load_pretrained(build_refiner("unet", 64, 1.0), tmp_path / name)
    (tmp_path / "code.pth").write_bytes(b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(UserError, match="cannot be read as weights"):
        load_pretrained(build_refiner("unet", 64, 1.0), tmp_path / "code.pth")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["TRAIN.COMPILE", "fast"], r"TRAIN\.COMPILE must be"),
        (["TRAIN.OPTIMIZER", "lion"], r"TRAIN\.OPTIMIZER must be one of adamw, sgd"),
        (["TRAIN.EMA", "1.0"], r"TRAIN\.EMA must be"),
        (["TRAIN.ACCUMULATE", "0"], r"TRAIN\.ACCUMULATE must be an integer of at least 1"),
        (["TRAIN.PRECISION", "int4"], r"TRAIN\.PRECISION must be one of auto, fp32, bf16, fp16"),
    ],
)
def test_options_that_mean_nothing_are_named(tiny, words, message):
    with pytest.raises(UserError, match=message):
        load_config(tiny, words)
