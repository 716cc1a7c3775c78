"""A refiner in another precision: what is converted, and what stays as it was trained."""

import pytest
import torch

from zoerefine.base.machine.device import DTYPES
from zoerefine.base.registries import NETWORKS
from zoerefine.depth.exporting.precision import Int8Conv, to_precision
from zoerefine.depth.model import build_refiner
from zoerefine.depth.model.refiner import DepthHead

pytestmark = pytest.mark.numeric


@pytest.fixture(params=NETWORKS)
def refiner(request):
    torch.manual_seed(0)
    untrained = build_refiner({"NAME": request.param, "BASE": 8, "MAX_LOG": 1.0})
    untrained(torch.rand(2, 3, 64, 64), torch.rand(2, 1, 64, 64) + 1)
    return untrained.eval()


def noise():
    yield torch.rand(1, 3, 64, 64), torch.rand(1, 1, 64, 64) + 1


def heads(core):
    return [module for module in core.modules() if isinstance(module, DepthHead)]


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_the_head_stays_as_it_was_trained(refiner, precision):
    core = to_precision(refiner, precision, noise)
    [converted], [trained] = heads(core), heads(refiner)
    assert torch.equal(converted.weight, trained.weight)
    assert torch.equal(converted.bias, trained.bias)
    if precision != "int8":  # and every other convolution is cast
        convolutions = {module for module in core.modules() if isinstance(module, torch.nn.Conv2d)}
        types = {conv.weight.dtype for conv in convolutions - set(heads(core))}
        assert types == {DTYPES[precision]}


def test_int8_quantizes_all_convolutions_but_the_first_and_the_head(refiner):
    count = sum(isinstance(module, torch.nn.Conv2d) for module in refiner.modules())
    core = to_precision(refiner, "int8", noise)
    assert sum(isinstance(module, Int8Conv) for module in core.modules()) == count - 2
