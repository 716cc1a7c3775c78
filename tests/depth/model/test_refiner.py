"""The refiner: identity when untrained, bounded, any size, samples of a batch independent."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.base.depth_limits import TYPICAL_M
from zoerefine.base.errors import UserError
from zoerefine.base.registries import NETWORKS
from zoerefine.depth.model import build_refiner
from zoerefine.depth.model.refiner import row_positions

pytestmark = pytest.mark.numeric


def inputs(batch=2, height=40, width=56, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rgb01 = torch.rand(batch, 3, height, width, generator=generator)
    zoe_m = torch.rand(batch, 1, height, width, generator=generator) * 9 + 0.1
    return rgb01, zoe_m


def build(name="small", max_log=1.0, **model):
    return build_refiner({"NAME": name, "BASE": 8, "MAX_LOG": max_log} | model)


def trained(name="small", max_log=1.0, confidence=False):
    """A refiner with random weights, after a forward pass in training mode."""
    torch.manual_seed(0)
    refiner = build(name, max_log, CONFIDENCE=confidence)
    refiner(*inputs())
    if confidence:
        torch.nn.init.normal_(refiner.get_parameter("backbone.scale_head.weight"), std=0.3)
    return refiner.eval()


@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=8)
@given(height=st.integers(1, 70), width=st.integers(1, 70))
def test_an_untrained_refiner_returns_its_input_bit_for_bit_at_any_size(name, height, width):
    rgb01, zoe_m = inputs(1, height, width)
    zoe_m[..., 0, 0] = 0.0
    refiner = build(name).eval()
    with torch.no_grad():
        assert torch.equal(refiner(rgb01, zoe_m), zoe_m)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(refiner(rgb01, zoe_m), zoe_m)


def test_a_predicted_correction_multiplies_the_pseudo_depth_whatever_its_scale():
    rgb01, zoe_m = inputs()
    refiners = [build(max_log=9.0, PREDICTS=predicts) for predicts in ("depth", "correction")]
    for refiner in refiners:
        refiner.trained.fill_(True)
        refiner.eval()
        refiner.backbone.requires_grad_(False).head.weight.zero_()
        refiner.backbone.head.bias.fill_(0.2)
    depth, corrected = (refiner(rgb01, zoe_m) for refiner in refiners)
    assert torch.allclose(depth, torch.full_like(depth, TYPICAL_M * math.exp(0.2)))
    assert torch.allclose(corrected, zoe_m * math.exp(0.2))


@pytest.mark.parametrize("name", NETWORKS)
def test_depths_relative_to_the_typical_depth_are_refined_alike(name):
    rgb01, zoe_m = inputs()
    torch.manual_seed(0)
    outdoors, indoors = build(name, TYPICAL_DEPTH_M=16 * TYPICAL_M), build(name)
    outdoors.trained.fill_(True)
    indoors.load_state_dict(outdoors.state_dict())
    with torch.no_grad():
        near, far = indoors.eval()(rgb01, zoe_m), outdoors.eval()(rgb01, 16 * zoe_m)
        alike = indoors(rgb01, 16 * zoe_m)
    torch.testing.assert_close(far, 16 * near, rtol=1e-4, atol=0)
    assert not torch.allclose(alike, 16 * near, rtol=1e-2)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_correction_is_bounded_and_invalid_pixels_stay_invalid(name):
    rgb01, zoe_m = inputs()
    zoe_m[:, :, :5] = 0.0
    with torch.no_grad():
        refined = trained(name, max_log=0.3)(rgb01, zoe_m)
    assert torch.equal(refined == 0, zoe_m == 0)
    change = (refined / zoe_m)[zoe_m > 0].log().abs()
    assert 0.01 < change.max() <= 0.3 + 1e-5


def test_the_bound_is_relative_to_the_pseudo_depth_at_any_distance():
    refiner = trained(max_log=0.5)
    torch.nn.init.constant_(refiner.get_parameter("backbone.head.bias"), 30.0)
    rgb01, zoe_m = inputs()
    zoe_m /= 100
    with torch.no_grad():
        torch.testing.assert_close(refiner(rgb01, zoe_m).log(), zoe_m.log() + 0.5)
    bias = math.log(0.02 / TYPICAL_M)
    torch.nn.init.constant_(refiner.get_parameter("backbone.head.bias"), bias)
    torch.nn.init.zeros_(refiner.get_parameter("backbone.head.weight"))
    with torch.no_grad():
        refined = refiner(rgb01, torch.full_like(zoe_m, 0.025))
    torch.testing.assert_close(refined, torch.full_like(refined, 0.02))


@pytest.mark.parametrize("name", NETWORKS)
def test_samples_of_a_batch_do_not_mix(name):
    rgb01, zoe_m = inputs()
    refiner = trained(name)
    with torch.no_grad():
        both = refiner(rgb01, zoe_m)
        one = refiner(rgb01[:1], zoe_m[:1])
    torch.testing.assert_close(both[:1], one)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_receives_a_gradient(name):
    refiner = trained(name).train()
    refiner(*inputs(4)).mean().backward()
    without = [n for n, p in refiner.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("bias", "truth"), [(30.0, 1.0), (-30.0, 9.0)])
def test_a_prediction_outside_the_bound_gets_a_gradient_back_inside(name, bias, truth):
    refiner = build(name, max_log=0.5)
    head = refiner.get_parameter("backbone.head.bias")
    torch.nn.init.constant_(head, bias)
    rgb01, zoe_m = inputs()
    refined = refiner(rgb01, zoe_m)
    assert (refined / zoe_m).log().abs().min() > 0.499  # every pixel is at the bound
    (refined - truth).square().mean().backward()
    assert head.grad is not None
    leads_back = (refined > truth) if bias > 0 else (refined < truth)
    assert leads_back.any()
    assert head.grad.sign() == (1 if bias > 0 else -1)  # a step goes against it


def test_a_prediction_outside_the_bound_gets_no_gradient_further_outside():
    refiner = build(max_log=0.5)
    head = refiner.get_parameter("backbone.head.bias")
    torch.nn.init.constant_(head, 30.0)
    rgb01, zoe_m = inputs()
    (refiner(rgb01, zoe_m) - 100).square().mean().backward()
    assert not head.grad.any()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("bias", [1e4, -1e4])
def test_gradients_are_finite_where_the_exponential_would_overflow(name, bias):
    refiner = build(name, max_log=2.0)
    torch.nn.init.constant_(refiner.get_parameter("backbone.head.bias"), bias)
    refiner(*inputs()).mean().backward()
    assert all(p.grad.isfinite().all() for p in refiner.parameters() if p.grad is not None)


def test_two_forward_passes_may_share_a_backward_pass():
    refiner = build()
    (refiner(*inputs(seed=1)).mean() + refiner(*inputs(seed=2)).mean()).backward()


@pytest.mark.parametrize("name", ["small", "unet"])
def test_predictions_are_finer_than_bfloat16_under_autocast(name):
    refiner = trained(name)
    rgb01, zoe_m = inputs()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        predicted = refiner.backbone(torch.randn(1, 5, 64, 64))
        assert refiner(rgb01, zoe_m).dtype == torch.float32
    assert predicted.dtype == torch.float32
    assert not torch.equal(predicted, predicted.bfloat16().float())


@given(height=st.integers(1, 500))
def test_row_positions_are_the_centres_of_rows_between_minus_1_and_1(height):
    rows = row_positions(height, torch.device("cpu"))
    assert rows.shape == (height, 1)
    edges = torch.linspace(-1, 1, height + 1)
    torch.testing.assert_close(rows[:, 0], (edges[:-1] + edges[1:]) / 2)


@pytest.mark.parametrize("size", [(40, 56), (64, 32)])
def test_a_refiner_for_one_size_computes_the_same(size):
    refiner = trained()
    with torch.no_grad():
        expected = refiner(*inputs(2, *size))
        refiner.fix_size(*size)
        assert torch.equal(refiner(*inputs(2, *size)), expected)
    assert "rows" not in refiner.state_dict()


def test_an_unknown_network_is_refused_by_name():
    with pytest.raises(UserError, match=r"MODEL\.NAME: no network 'gided'.*did you mean guided\?"):
        build("gided")
