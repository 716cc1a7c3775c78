"""Options of a training: steps, accumulation, precision, patience, compilation, weights."""

import math
import shutil

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.depth.training.conftest import rows
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.cache.verification import BackgroundVerification
from zoerefine.depth.data.loading.sampler import OrderOptions
from zoerefine.depth.model import build_refiner
from zoerefine.depth.training import loop
from zoerefine.depth.training.calibration import fit_log_scale
from zoerefine.depth.training.checkpoint import load_checkpoint, load_refiner
from zoerefine.depth.training.job import prepare
from zoerefine.depth.training.loop import Loop
from zoerefine.depth.training.start_weights import load_pretrained
from zoerefine.depth.training.trainer import MIN_LOSS_SCALE

pytestmark = pytest.mark.numeric

# Only a GPU has CUDA graphs; on a CPU the mode equals the default.
COMPILED = ["default", "reduce-overhead"] if torch.cuda.is_available() else ["default"]


def test_a_run_ends_after_so_many_steps(train):
    run = train("TRAIN.STEPS", 3)  # an epoch has two
    assert [row["step"] for row in rows(run, "train")] == [1, 2, 3]
    assert len(rows(run, "val")) == 2
    assert all(row["grad_norm"] > 0 for row in rows(run, "train"))


def test_sgd_trains_too(trainer):
    made = trainer("TRAIN.OPTIMIZER", "sgd", "TRAIN.LR", 0.05, "TRAIN.PRECISION", "fp32",
                   "TRAIN.SCHEDULE", "constant")  # fmt: skip
    batch = next(made.sample_training_batches())
    losses = [made.train_step(batch)[0].item() for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("stop_after", [1, 2])
def test_a_report_stops_a_run_before_its_last_epoch_alone(tiny, tmp_path, stop_after):
    """A run at its end saves nothing by being stopped, and loses its place among the trials."""
    cfg, run, seen = load_config(tiny, ["TRAIN.EPOCHS", "2"]), RunDir(tmp_path / "run"), []
    run.create()

    def report(epoch, metrics):
        seen.append(metrics["abs_rel"])
        return len(seen) == stop_after

    results = loop.train(cfg, run, *prepare(cfg), report)
    assert len(seen) == stop_after
    assert results["pruned"] == (stop_after == 1)


def test_a_run_without_improvement_ends_early(train):
    # Nothing is learned: only the statistics of batch norm move, and they soon settle.
    run = train("TRAIN.PATIENCE", 2, "TRAIN.EPOCHS", 60, "TRAIN.LR", 0.0, "TRAIN.PICTURES", 0)
    found = [row["refined"]["abs_rel"] for row in rows(run, "val")]
    assert len(found) < 60
    without_gain, ends = 0, []
    for number, value in enumerate(found, 1):
        better = value < min(found[: number - 1], default=math.inf)
        without_gain = 0 if better else without_gain + 1
        ends.append(without_gain == 2)
    assert ends == [False] * (len(found) - 1) + [True]
    assert run.read_json(run.results_file)["stopped_early"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_trains_to_nearly_the_same_loss(finished, train, precision):
    mixed = train("TRAIN.PRECISION", precision)
    for ours, theirs in zip(rows(mixed, "train"), rows(finished, "train"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.1)


def test_accumulated_parts_give_the_mean_of_their_losses(trainer):
    trainers = [trainer("TRAIN.ACCUMULATE", n, "TRAIN.PRECISION", "fp32") for n in (1, 2)]
    for one in trainers:  # batch statistics would differ between a batch and its parts
        for module in one.refiner.modules():
            module.train(not isinstance(module, nn.BatchNorm2d))
    batch = next(trainers[0].sample_training_batches())
    whole = [trainers[0].backward(part)[0] for part in batch.split(2)]
    trainers[1].backward(batch)
    assert len(whole) == 2
    grads = [[p.grad for p in one.refiner.parameters() if p.grad is not None] for one in trainers]
    assert all(one.any() for one in grads[0])
    for one, two in zip(*grads, strict=True):
        torch.testing.assert_close(one / 2, two, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("decay", [0.25, 0.9, 0.0])
def test_weights_are_averaged_with_a_smaller_decay_in_the_first_steps(trainer, decay):
    made = trainer("TRAIN.EMA", decay)
    name = "backbone.down.0.0.weight"
    batch = next(made.sample_training_batches())
    expected = torch.tensor(0.0)
    for step in range(4):
        made.train_step(batch)
        now = made.refiner.state_dict()[name].clone()
        share = min(decay, (1 + step) / (10 + step))  # .1, .18, .25, .31
        expected = share * expected + (1 - share) * now if step else now
    averaged = made.weights.state_dict()
    torch.testing.assert_close(averaged[name], expected)
    assert torch.equal(expected, now) == (decay == 0)
    assert averaged["trained"]
    assert averaged["backbone.down.0.1.num_batches_tracked"] == 4


def loop_of(made, tmp_path, factor):
    """Its run and loop; the gradients of a weight are multiplied by `factor()`."""
    run = RunDir(tmp_path / "run")
    first = made.refiner.get_parameter("backbone.down.0.0.weight")
    first.register_hook(lambda gradient: gradient * factor())
    return run, Loop(made.cfg, run, made, None, {}, BackgroundVerification(made.cache))


def test_a_non_finite_gradient_stops_before_a_checkpoint_holds_it(trainer, tmp_path):
    made = trainer("TRAIN.PRECISION", "fp32", "TRAIN.CHECKPOINT_S", "0.0")
    run, loop = loop_of(made, tmp_path, lambda: math.inf if made.step == 1 else 1)
    with pytest.raises(UserError, match=r"the gradient norm of step 2 is (nan|inf): look at"):
        loop.run_epochs()
    assert run.read_json(run.path / "not_finite.json")["step"] == 2
    loop.writer.wait()
    assert load_checkpoint(run.checkpoints)["step"] == 1


@pytest.mark.parametrize("lasting", [False, True])
def test_fp16_stops_only_at_gradients_that_overflow_at_any_loss_scale(trainer, tmp_path, lasting):
    made = trainer("TRAIN.PRECISION", "fp16", "TRAIN.EPOCHS", 4, "TRAIN.EVAL_EVERY", 4)
    if lasting:  # few steps from the lowest scale, instead of 32
        made.scaler = torch.amp.GradScaler(made.device.type, init_scale=MIN_LOSS_SCALE * 4)
    run, loop = loop_of(made, tmp_path, lambda: math.inf if lasting or made.step == 1 else 1)
    if not lasting:
        loop.run_epochs()
        assert made.step == 8
        return
    with pytest.raises(UserError, match="the gradient norm of step"):
        loop.run_epochs()
    assert run.read_json(run.path / "not_finite.json")["step"] <= 3


def test_gradients_are_clipped_to_their_norm(trainer):
    made = trainer("TRAIN.CLIP", "1e-3", "TRAIN.OPTIMIZER", "sgd", "TRAIN.MOMENTUM", "0.0",
                   "TRAIN.WEIGHT_DECAY", "0.0", "TRAIN.SCHEDULE", "constant", "TRAIN.WARMUP", "0.0",
                   "TRAIN.LR", "1.0", "TRAIN.PRECISION", "fp32")  # fmt: skip

    def weights():
        parts = {True: [], False: []}
        for name, part in made.refiner.named_parameters():
            parts["scale_head" in name].append(part.detach().flatten())
        return torch.cat(parts[False]), torch.cat(parts[True])

    before = weights()
    made.train_step(next(made.sample_training_batches()))
    assert made.grad_norm > 1e-3  # before clipping
    for new, old in zip(weights(), before, strict=True):  # depth, and confidence apart
        assert (new - old).norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_depth_is_trained_with_confidence_as_without_it_bit_for_bit(train):
    runs = [train("MODEL.CONFIDENCE", on, "TRAIN.CLIP", "0.1", "TRAIN.ACCUMULATE", 2,
                  "TRAIN.PRECISION", "fp32", "TRAIN.CALIBRATE", "false", name=f"confidence-{on}")
            for on in ("true", "false")]  # fmt: skip
    ours, theirs = (load_refiner(run).state_dict() for run in runs)
    assert set(ours) - set(theirs) == {f"backbone.scale_head.{one}" for one in ("weight", "bias")}
    for name, weight in theirs.items():
        assert torch.equal(ours[name], weight), name
    losses = [[row["loss"] for row in rows(run, "train")] for run in runs]
    assert losses[0] == losses[1]
    assert all("confidence" in row for row in rows(runs[0], "train"))


def test_a_step_whose_gradients_overflow_changes_no_weights(trainer):
    made = trainer("TRAIN.PRECISION", "fp16")
    made.scaler = torch.amp.GradScaler(made.device.type, init_scale=2.0**60)
    before = [weights.clone() for weights in made.refiner.parameters()]
    made.train_step(next(made.sample_training_batches()))
    for ours, theirs in zip(made.refiner.parameters(), before, strict=True):
        assert torch.equal(ours, theirs)
    assert made.scaler.get_scale() == 2.0**59


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_step_does_not_wait_for_the_gpu(trainer):
    made = trainer()
    batch = next(made.sample_training_batches())
    made.train_step(batch)  # the first creates the optimizer's state
    torch.cuda.set_sync_debug_mode("error")
    try:
        made.train_step(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("mode", COMPILED)
def test_a_compiled_refiner_trains_to_nearly_the_same_loss(trainer, mode):
    # The smallest network, since compiling takes most of the time; padding belongs to the refiner.
    words = ("MODEL.NAME", "tests.depth.training.networks:Padded", "TRAIN.PRECISION", "fp32")
    plain, compiled = trainer(*words), trainer(*words, "TRAIN.COMPILE", mode)
    batch = next(plain.sample_training_batches())
    for part in batch, batch.split(2)[0]:  # two sizes: an epoch's last batch may be smaller
        losses = [one.train_step(part)[0].item() for one in (plain, compiled)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def resnet18(classes=10):
    """Random weights with torchvision's names and shapes."""
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


def unet(base):
    return build_refiner({"NAME": "unet", "BASE": base, "MAX_LOG": 1.0})


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_imagenet_weights_load_by_torchvisions_names(tmp_path, ending):
    weights = resnet18()
    path = tmp_path / f"resnet18.{ending}"
    torch.save(weights, path) if ending == "pth" else save_file(weights, path)
    refiner = unet(64)
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
    assert torch.equal(refiner.eval()(rgb, zoe), zoe)  # an untrained refiner


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path):
    torch.save(resnet18(), tmp_path / "r.pth")
    with pytest.raises(UserError, match=r"does not fit the refiner.*MODEL\.BASE 64"):
        load_pretrained(unet(32), tmp_path / "r.pth")
    torch.save({"net": 3}, tmp_path / "x.pth")
    (tmp_path / "empty.pth").write_bytes(b"")
    faults = {"x.pth": "does not hold tensors", "empty.pth": "does not hold tensors",
              "none.pth": "No such file", ".": "Is a directory"}  # fmt: skip
    for name, words in faults.items():
        with pytest.raises(UserError, match=words):
            load_pretrained(unet(64), tmp_path / name)
    (tmp_path / "code.pth").write_bytes(b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(UserError, match="a pickled model is code and is not loaded") as raised:
        load_pretrained(unet(64), tmp_path / "code.pth")
    assert "weights_only" not in str(raised.value)


def test_the_global_scale_weighs_scenes_as_training_does(trainer):
    scenes = trainer().split.train
    weights = [{"scene": scene, "weight": float(scene == scenes[0])} for scene in scenes]
    weighted = trainer("LOADER.ORDER", "weighted", "LOADER.SCENE_WEIGHTS", weights)
    alone = fit_log_scale(weighted.prefetch(weighted.loader_of(
        weighted.cache.indices(scenes[:1]), 0, OrderOptions("sequential"))))  # fmt: skip
    assert weighted.log_scale == pytest.approx(alone, abs=0.02)
    assert trainer().log_scale != pytest.approx(alone, abs=0.02)
