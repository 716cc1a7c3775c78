"""Training on a GPU has no hidden waits: nothing in a step or a conversion asks for a value.

Checked without a GPU, on `meta` tensors, which have shapes but no values. Asking such a tensor for
a value raises an error; a copy from the CPU that the CPU would wait for is recorded.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoerefine.base.registries import LOSS_TERMS, NETWORKS
from zoerefine.depth.data.loading.augment import Augmentation
from zoerefine.depth.data.loading.loader import Batch
from zoerefine.depth.data.loading.prefetch import DeviceBatch, Prefetcher
from zoerefine.depth.loss import Loss
from zoerefine.depth.model.refiner import TrainedOutputs
from zoerefine.depth.training import optimizer as distributed
from zoerefine.depth.training.optimizer import GlobalBatchNorm, WeightAverage, make_optimizer

META = torch.device("meta")
BATCH, HEIGHT, WIDTH = 4, 24, 32


class Copies(TorchDispatchMode):
    """Records copies of the CPU's tensors to the device that are not `non_blocking`."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        names = [argument.name for argument in operation._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        # Numbers are tensors without dimensions; they travel with the operation.
        from_cpu = any(one.device.type == "cpu" and one.dim() for one in tensors((args, kwargs)))
        blocking = "non_blocking" in names and not given.get("non_blocking")
        if from_cpu and on_device(result) and blocking:
            self.found.append(str(operation))
        return result


class Constants(TorchFunctionMode):
    """Records tensors that are made of Python values on the device: a blocking copy, too."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        lists = function is torch.Tensor.__getitem__ and isinstance(args[1], list)
        made = function in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor)
        if (made or lists) and on_device(result):
            self.found.append(function.__name__)
        return result


def tensors(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def on_device(values):
    return any(tensor.device == META for tensor in tensors(values))


def waits(work):
    """The operations for which the CPU would wait if `meta` were a GPU."""
    found = []
    with Copies(found), Constants(found):
        work()
    return found


@pytest.fixture
def on_meta(trainer, monkeypatch):
    """A trainer whose tensors are all on `meta`: on_meta("MODEL.NAME", "unet")."""
    # torch has no autocast for `meta`.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)

    def make(*words):
        made = trainer("TRAIN.PRECISION", "fp32", "TRAIN.DETERMINISTIC", "false", *words)
        made.device = META
        made.refiner = made.refiner.to(META)
        made.forward = TrainedOutputs(made.refiner)
        made.optimizer = make_optimizer(made.cfg.TRAIN, made.refiner.parameters())
        made.average = WeightAverage(made.refiner, made.cfg.TRAIN.EMA)
        made.loss = Loss([{"name": name, "weight": 1.0} for name in LOSS_TERMS], 0.7)
        return made

    return make


def meta_batch():
    one = torch.empty(BATCH, 1, HEIGHT, WIDTH, device=META)
    rgb01 = one.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
    return DeviceBatch(rgb01, one, one.clone(), one.byte(), torch.arange(BATCH))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_training_step_waits_for_nothing(on_meta, network, optimizer):
    words = "MODEL.NAME", network, "MODEL.BASE", 8, "TRAIN.OPTIMIZER", optimizer
    made = on_meta(*words, "TRAIN.ACCUMULATE", 2)
    made.train_step(meta_batch())  # the first step creates the optimizer's state
    assert waits(lambda: made.train_step(meta_batch())) == []


def test_a_step_that_asks_for_a_value_is_found(on_meta):
    made = on_meta()
    plain = made.loss_of

    def reading(batch):
        loss, terms = plain(batch)
        return loss * float(loss.item() > 0), terms

    made.loss_of = reading
    with pytest.raises(RuntimeError, match="meta"):
        made.train_step(meta_batch())


def test_a_batch_is_converted_and_augmented_without_waiting(trainer):
    made = trainer()
    cache = made.cache
    loader = SimpleNamespace(cache=cache)
    change = Augmentation(flip=0.5, crop=0.2, color=0.2, pseudo_scale=0.1, depth_scale=0.1,
                          cutout=0.5)  # fmt: skip
    prefetcher = Prefetcher(loader, META, lambda batch: change(batch, 0, 0), (HEIGHT // 2, WIDTH))
    rows = torch.empty(BATCH, cache.stride // 8, dtype=torch.int64, device=META)
    batch = Batch(rows, torch.arange(BATCH), cache.fields)
    assert waits(lambda: prefetcher._convert(batch)) == []


def test_batch_norm_over_several_ranks_waits_for_nothing(monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "sum_over_ranks", lambda values: values)
    norm = GlobalBatchNorm(8, device=META).train()
    assert waits(lambda: norm(torch.empty(2, 8, 4, 4, device=META))) == []


def test_a_blocking_copy_is_found():
    values = torch.empty(3, device=META)
    assert waits(lambda: torch.ones(3).to(META)) == ["aten._to_copy.default"]
    assert waits(lambda: values.copy_(torch.ones(3))) == ["aten.copy_.default"]
    assert waits(lambda: values.new_tensor([1.0])) == ["new_tensor"]
    assert waits(lambda: torch.tensor([1.0], device=META)) == ["tensor"]
    assert waits(lambda: values[[0, 1]]) == ["__getitem__"]
    assert waits(lambda: torch.ones(3).to(META, non_blocking=True) * 2) == []


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_optimizers_are_fused_on_a_gpu_alone(trainer, optimizer):
    """Others read fp16's overflow flag on the CPU at every step."""
    options = trainer("TRAIN.OPTIMIZER", optimizer).cfg.TRAIN
    for device, fused in (("cpu", False), ("cuda", True)):
        with FakeTensorMode():
            weights = [torch.nn.Parameter(torch.empty(3, device=device))]
            assert make_optimizer(options, weights).defaults["fused"] is fused
