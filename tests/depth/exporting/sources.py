"""Refiners with random weights, as the sources of engines."""

from functools import partial

import torch

from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.model import build_refiner


def noise(height=24, width=32):
    """Two batches to calibrate with."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        rgb01 = torch.rand(1, 3, height, width, generator=generator)
        yield rgb01, torch.rand(1, 1, height, width, generator=generator) * 5 + 0.5


def untrained_source(network="small", height=24, width=32, **model):
    """A refiner that returns its input, for pictures of one size."""
    given = {"NAME": network, "BASE": 4, "MAX_LOG": 1.0, "CONFIDENCE": True} | model
    return ExportSource(build_refiner(given).eval(), height, width, partial(noise, height, width))


def random_source(network="small", height=24, width=32, **model):
    """One that changes its input, with random weights."""
    torch.manual_seed(0)
    source = untrained_source(network, height, width, **model)
    for weights in source.refiner.parameters():
        if weights.dim() > 1:
            torch.nn.init.kaiming_normal_(weights)
    source.refiner.trained.fill_(True)
    return source
