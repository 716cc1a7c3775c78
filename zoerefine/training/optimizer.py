"""Optimizers by name: functions of the parameters and `cfg.TRAIN`.

To add one, write the function and one row of `registries.OPTIMIZERS`.
"""

from collections.abc import Iterable

import torch
from torch import nn

from zoerefine.config.training_keys import TrainKeys
from zoerefine.registries import OPTIMIZERS


def make_optimizer(options: TrainKeys, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that TRAIN.OPTIMIZER names."""
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
