"""Steps, augmentation, points and evaluation of a training on fake CUDA tensors, in strict mode.

python walk_on_fake_cuda.py LIBRARY CONFIG [KEY VALUE]...

LIBRARY registers a device guard for CUDA; "" with a torch that has CUDA. Fake tensors have shapes
and devices, and no values: operations that mix devices, ask for a value, or are refused in strict
mode raise torch's own errors. The backward pass needs a GPU.
"""

import ctypes
import sys
from unittest.mock import Mock, patch

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.depth.training.strict_mode import StrictCuda
from zoerefine.base.config import load_config
from zoerefine.base.machine.device import DTYPES
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.metrics import coverage, valid_pixels
from zoerefine.depth.model.refiner import TrainedOutputs
from zoerefine.depth.training.evaluate import predict_all, predict_with_points
from zoerefine.depth.training.job import prepare
from zoerefine.depth.training.optimizer import make_optimizer
from zoerefine.depth.training.point_inputs import training_transform, with_all_points
from zoerefine.depth.training.trainer import Trainer

CUDA = torch.device("cuda", 0)
BATCH, HEIGHT, WIDTH = 8, 24, 32


def a_gpu():
    """What `torch.autocast` asks of one."""
    answers = {"is_available": True, "current_device": 0, "is_bf16_supported": True}
    return patch.multiple(
        torch.cuda, **{name: Mock(return_value=value) for name, value in answers.items()}
    )


def move(trainer, precision):
    """Put all tensors of a trainer on the fake GPU."""
    trainer.device, trainer.dtype = CUDA, DTYPES[precision]
    for network in trainer.refiner, trainer.average.network:
        for module in network.modules():
            for name, values in [*module.named_buffers(recurse=False)]:
                module._buffers[name] = like(values)
            for name, values in [*module.named_parameters(recurse=False)]:
                module._parameters[name] = torch.nn.Parameter(like(values), values.requires_grad)
    trainer.forward = TrainedOutputs(trainer.refiner) if trainer.has_confidence else trainer.refiner
    trainer.optimizer = make_optimizer(trainer.cfg.TRAIN, trainer.refiner.parameters())


def like(values):
    return torch.empty_strided(values.shape, values.stride(), dtype=values.dtype, device=CUDA)


def fake_batch():
    one = torch.empty(BATCH, 1, HEIGHT, WIDTH, device=CUDA)
    rgb01 = one.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
    return DeviceBatch(rgb01, one, one.clone(), one.byte(), INDEX)


INDEX = torch.arange(BATCH)


def half_of_them(values):
    """In the place of `nonzero`, whose result has a shape that only values tell."""
    assert values.device.type == "cpu", "nonzero on a GPU waits for it"
    return torch.empty(len(values) // 2, values.dim(), dtype=torch.int64)


def walk(trainer, farthest_m):
    batch = training_transform(trainer.cfg, 0)(fake_batch())
    trainer.backward(batch) if torch.cuda.device_count() else trainer.loss_of(batch)
    trainer.average.update(0)
    network = trainer.weights.eval()
    with torch.no_grad():
        plain = fake_batch()
        depths, band = predict_all(network, plain, 0.1, trainer.dtype)
        depths |= predict_with_points(network, plain, depths["refined"], 50, trainer.dtype)
        mask = valid_pixels(plain.depth_m, plain.zoe_m, farthest_m)
        coverage(depths["refined"], band, plain.depth_m, mask)
        trainer.loss(depths["refined"], plain.zoe_m, plain.depth_m, plain.objects, plain.rgb01)
        list(with_all_points([plain]))


def main(library, config, *words):
    if library:
        ctypes.CDLL(library)
    else:
        torch._C._ensureCUDADeviceGuardSet()
    torch.Tensor.nonzero = half_of_them
    fake_tensor.init_gpu_context = lambda device: None  # of torch 2.11: it starts the GPU
    for precision in DTYPES:
        cfg = load_config(config, ["TRAIN.PRECISION", "fp32", *words])
        trainer = Trainer(cfg, *prepare(cfg))
        assert torch.are_deterministic_algorithms_enabled()
        with a_gpu(), FakeTensorMode(allow_non_fake_inputs=True), StrictCuda():
            move(trainer, precision)
            walk(trainer, trainer.cache.farthest_m)
        print(precision, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
