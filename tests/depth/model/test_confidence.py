"""Confidence and calibration of a refiner: what they change, and what they leave alone."""

import math
from functools import partial

import pytest
import torch

from tests.depth.model.test_refiner import build, inputs
from tests.depth.model.test_refiner import trained as trained_refiner
from zoerefine.base.errors import UserError
from zoerefine.base.registries import NETWORKS
from zoerefine.depth.loss import Loss
from zoerefine.depth.model.refiner import BAND_SCALES, DepthHead, TrainedOutputs

pytestmark = pytest.mark.numeric
trained = partial(trained_refiner, confidence=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_depth_is_the_same_with_confidence_bit_for_bit(name):
    rgb01, zoe_m = inputs()
    zoe_m[:, :, :5] = 0.0
    refiner = trained(name)
    with torch.no_grad():
        depth_m, spread = refiner.refine(rgb01, zoe_m)
        assert torch.equal(depth_m, refiner(rgb01, zoe_m))
        assert torch.equal(depth_m, trained(name, confidence=False)(rgb01, zoe_m))
    assert spread.shape == zoe_m.shape
    assert torch.equal(spread == 0, zoe_m == 0)
    assert spread[zoe_m > 0].unique().numel() > 100


@pytest.mark.parametrize("name", NETWORKS)
def test_training_confidence_changes_no_gradient_of_depth(name):
    gradients = {}
    rgb01, zoe_m = inputs()
    truth_m, objects = inputs(seed=1)[1], torch.zeros_like(zoe_m, dtype=torch.uint8)
    for confidence in (False, True):
        torch.manual_seed(0)
        refiner = build(name, CONFIDENCE=confidence)
        loss = Loss([{"name": "l1_log", "weight": 1.0}], 0.5)
        if confidence:
            depth_m, log_scale = TrainedOutputs(refiner)(rgb01, zoe_m)
            value, terms = loss(depth_m, zoe_m, truth_m, objects, rgb01, log_scale)
            (value + terms["confidence"]).backward()
        else:
            loss(refiner(rgb01, zoe_m), zoe_m, truth_m, objects, rgb01)[0].backward()
        gradients[confidence] = {key: p.grad for key, p in refiner.named_parameters()}
    for key, gradient in gradients[False].items():
        assert torch.equal(gradient, gradients[True].pop(key)), key
    assert len(gradients[True]) == 2
    assert all(gradient.any() for gradient in gradients[True].values())


class WholeHeads(torch.fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, DepthHead) or super().is_leaf_module(module, name)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_every_network_keeps_the_contract(name, outputs):
    """Shapes are those of its input, and it can be traced."""
    refiner = trained(name, confidence=outputs == 2)
    network = refiner.backbone
    example = torch.randn(2, 5, 2 * network.stride, 3 * network.stride)
    with torch.no_grad():
        expected = network(example)
        found = [expected] if outputs == 1 else expected
        assert [one.shape for one in found] == [(2, 1, *example.shape[2:])] * outputs
        traced = torch.fx.GraphModule(network, WholeHeads().trace(network))
        torch.testing.assert_close(traced(example), expected)
        torch.testing.assert_close(torch.jit.trace(network, example)(example), expected)
        if outputs == 2:
            whole = torch.jit.trace_module(refiner, {"refine": inputs(1, 64, 64)})
            other = inputs(2, 64, 64, seed=3)
            torch.testing.assert_close(whole.refine(*other), refiner.refine(*other))


def test_the_term_is_least_at_the_errors_own_scale():
    truth_m = torch.ones(1, 1, 1, 4)
    depth_m = torch.tensor([0.1, -0.3, 0.2, -0.2]).view(1, 1, 1, 4).exp()
    objects, rgb01 = torch.zeros(1, 1, 1, 4, dtype=torch.uint8), torch.zeros(1, 3, 1, 4)

    def term(scale):
        log_scale = torch.full_like(truth_m, math.log(scale))
        loss = Loss([{"name": "l1", "weight": 1.0}], 0.5)
        return loss(depth_m, truth_m, truth_m, objects, rgb01, log_scale)[1]["confidence"].item()

    assert term(0.2) == pytest.approx(1 + math.log(0.2))  # the mean error is 0.2
    assert term(0.2) < min(term(0.15), term(0.25))


def test_the_band_of_a_laplace_distribution_holds_90_percent():
    errors = torch.distributions.Laplace(0.0, 0.1).icdf(torch.linspace(0.0005, 0.9995, 1000))
    assert (errors.abs() <= 0.1 * BAND_SCALES).float().mean() == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize("name", NETWORKS)
def test_without_strength_depth_is_the_pseudo_depth_times_the_factor(name):
    refiner = trained(name)
    refiner.strength.fill_(0.0)
    refiner.log_factor.fill_(math.log(0.8))
    rgb01, zoe_m = inputs()
    with torch.no_grad():
        torch.testing.assert_close(refiner(rgb01, zoe_m), 0.8 * zoe_m)


def test_strength_takes_a_share_of_the_correction():
    refiner, (rgb01, zoe_m) = trained(), inputs()
    with torch.no_grad():
        full = (refiner(rgb01, zoe_m) / zoe_m).log()
        refiner.strength.fill_(0.25)
        refiner.log_factor.fill_(0.4)
        quarter = (refiner(rgb01, zoe_m) / zoe_m).log()
    torch.testing.assert_close(quarter, 0.4 + 0.25 * (full - 0.4), atol=1e-5, rtol=0)


def test_a_frame_corrected_beyond_the_limit_falls_back_and_others_do_not():
    refiner, (rgb01, zoe_m) = trained(), inputs()
    zoe_m[1] *= 0.001  # far from the depths that it predicts, so it changes them to the bound
    zoe_m[:, :, :3] = 0.0  # invalid pixels do not count
    with torch.no_grad():
        free = refiner(rgb01, zoe_m)
        sizes = [(f / z)[z > 0].log().abs().mean() for f, z in zip(free, zoe_m, strict=True)]
        assert sizes[1] > sizes[0] + 0.05
        refiner.limit.copy_((sizes[0] + sizes[1]) / 2)
        limited = refiner(rgb01, zoe_m)
    torch.testing.assert_close(limited[0], free[0])
    size = (limited[1] / zoe_m[1])[zoe_m[1] > 0].log().abs().mean()
    torch.testing.assert_close(size, refiner.limit**2 / sizes[1], atol=1e-4, rtol=0)


def test_the_spread_factor_widens_the_band():
    refiner, (rgb01, zoe_m) = trained(), inputs()
    with torch.no_grad():
        _, nominal = refiner.refine(rgb01, zoe_m)
        refiner.spread_factor.fill_(1.5)
        _, wide = refiner.refine(rgb01, zoe_m)
    torch.testing.assert_close(wide, 1.5 * nominal)


def test_confidence_is_no_option_of_a_network():
    with pytest.raises(UserError, match=r"MODEL\.CONFIDENCE sets confidence"):
        build(CONFIDENCE=True, OPTIONS={"confidence": False})
