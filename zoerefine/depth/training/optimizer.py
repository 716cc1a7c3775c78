"""Optimizers by name: functions of the parameters and `cfg.TRAIN`.

To add one, write the function and one row of `registries.OPTIMIZERS`.
"""

import copy
import warnings
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zoerefine.base.config.training_keys import TrainKeys
from zoerefine.base.ranks import sum_over_ranks, world_size
from zoerefine.base.registries import OPTIMIZERS
from zoerefine.depth.model.refiner import CALIBRATED


def make_optimizer(options: TrainKeys, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = OPTIMIZERS.load(options.OPTIMIZER)(parameters, options)
    return optimizer


def adamw(parameters: Iterable[nn.Parameter], options: TrainKeys) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""
    parameters = list(parameters)
    return torch.optim.AdamW(
        parameters,
        options.LR,
        betas=(options.BETA1, options.BETA2),
        eps=options.EPS,
        weight_decay=options.WEIGHT_DECAY,
        fused=on_gpu(parameters),
    )


def sgd(parameters: Iterable[nn.Parameter], options: TrainKeys) -> torch.optim.Optimizer:
    """Stochastic gradient descent with Nesterov momentum."""
    parameters = list(parameters)
    return torch.optim.SGD(
        parameters,
        options.LR,
        momentum=options.MOMENTUM,
        weight_decay=options.WEIGHT_DECAY,
        nesterov=options.MOMENTUM > 0,
        fused=on_gpu(parameters),
    )


def on_gpu(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether all parameters are on a GPU, where a fused step is faster.

    With fp16, a fused step also reads the scaler's overflow flag on the GPU. Other steps wait for
    its value on the CPU.
    """
    return all(parameter.is_cuda for parameter in parameters)


class GlobalBatchNorm(nn.BatchNorm2d):
    """Batch normalisation over the samples of all ranks, on any device.

    torch.nn.SyncBatchNorm does the same, but on GPUs only.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or world_size() == 1:
            return super().forward(x)
        values = x.float()
        # Not new_tensor: on a GPU it copies from the CPU and waits for all queued work.
        count = values.new_full((1,), values.numel() / self.num_features)
        sums = torch.cat([values.sum((0, 2, 3)), values.square().sum((0, 2, 3)), count])
        total, squares, count = sum_over_ranks(sums).split([self.num_features] * 2 + [1])
        mean = total / count
        variance = (squares / count - mean.square()).clamp(min=0)
        unbiased = variance.detach() * count / (count - 1).clamp(min=1)
        self.update_running_statistics(mean.detach(), unbiased)
        shape = (1, -1, 1, 1)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        return (values * scale.view(shape) + shift.view(shape)).to(x.dtype)

    @torch.no_grad()
    def update_running_statistics(self, mean: Tensor, variance: Tensor) -> None:
        """As BatchNorm2d does."""
        assert self.momentum and self.running_mean is not None and self.running_var is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)


def data_parallel(refiner: nn.Module) -> nn.Module:
    """The refiner wrapped for training by all ranks; with one rank, the refiner itself.

    Its batch normalisations become global in place; parameters keep their names.
    """
    if world_size() == 1:
        return refiner
    for name, module in list(refiner.named_modules()):
        if type(module) is nn.BatchNorm2d:
            made = GlobalBatchNorm(module.num_features, module.eps, module.momentum)
            made.load_state_dict(module.state_dict())
            refiner.set_submodule(name, made.to(module.weight.device))
    with warnings.catch_warnings():  # torch 2.11 has no other name for this option
        warnings.simplefilter("ignore", FutureWarning)
        return DistributedDataParallel(refiner, broadcast_buffers=False)


class WeightAverage:
    """A copy of a network with averaged weights and batch statistics.

    torch's `optim.swa_utils.AveragedModel` keeps a count on the CPU, for which a GPU waits at
    every step.

    Attributes:
        network: the copy.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = copy.deepcopy(network).requires_grad_(False)
        # `load_state_dict` copies into these tensors, so the references stay valid.
        ours, theirs = self.network.state_dict(), network.state_dict()
        # Not of the calibration: a mean of infinite limits would be NaN.
        means = [n for n, v in ours.items() if v.is_floating_point() and n not in CALIBRATED]
        self._means = [ours[name] for name in means], [theirs[name] for name in means]
        others = [name for name in ours if name not in means]
        self._others = [ours[name] for name in others], [theirs[name] for name in others]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after a step, counted from 0; those of step 0 are copied.

        The decay is smaller in the first steps, so that the average of a short training does not
        keep the random initial weights.
        """
        decay = min(self.decay, (1 + step) / (10 + step)) if step else 0.0
        torch._foreach_lerp_(*self._means, 1 - decay)
        if self._others[0]:
            torch._foreach_copy_(*self._others)
