"""The refiner: identity when untrained, bounded, any size, one picture at a time."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.errors import UserError
from zoerefine.model import BACKBONES, build_refiner
from zoerefine.model.refiner import TYPICAL, rows_of


def inputs(batch=2, height=40, width=56, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rgb01 = torch.rand(batch, 3, height, width, generator=generator)
    zoe_m = torch.rand(batch, 1, height, width, generator=generator) * 9 + 0.1
    return rgb01, zoe_m


def trained(name="small", max_log=1.0):
    """A refiner of random weights that has seen one step."""
    torch.manual_seed(0)
    refiner = build_refiner(name, 8, max_log)
    refiner(*inputs())
    return refiner.eval()


@pytest.mark.parametrize("name", BACKBONES)
@settings(max_examples=8)
@given(height=st.integers(1, 70), width=st.integers(1, 70))
def test_untrained_returns_its_input_bit_for_bit_at_any_size(name, height, width):
    rgb01, zoe_m = inputs(1, height, width)
    zoe_m[..., 0, 0] = 0.0
    refiner = build_refiner(name, 8, 1.0).eval()
    with torch.no_grad():
        assert torch.equal(refiner(rgb01, zoe_m), zoe_m)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(refiner(rgb01, zoe_m), zoe_m)


@pytest.mark.parametrize("name", BACKBONES)
def test_the_correction_is_bounded_and_no_measurement_stays_none(name):
    rgb01, zoe_m = inputs()
    zoe_m[:, :, :5] = 0.0
    with torch.no_grad():
        refined = trained(name, max_log=0.3)(rgb01, zoe_m)
    assert torch.equal(refined == 0, zoe_m == 0)
    change = (refined / zoe_m)[zoe_m > 0].log().abs()
    assert 0.01 < change.max() <= 0.3 + 1e-5


def test_the_bound_is_about_the_pseudo_depth_itself_however_near():
    refiner = trained(max_log=0.5)
    torch.nn.init.constant_(refiner.get_parameter("backbone.head.bias"), 30.0)
    rgb01, zoe_m = inputs()
    zoe_m /= 100
    with torch.no_grad():
        torch.testing.assert_close(refiner(rgb01, zoe_m).log(), zoe_m.log() + 0.5)
    torch.nn.init.constant_(refiner.get_parameter("backbone.head.bias"), math.log(0.02) - TYPICAL)
    torch.nn.init.zeros_(refiner.get_parameter("backbone.head.weight"))
    with torch.no_grad():
        told = refiner(rgb01, torch.full_like(zoe_m, 0.025))
    torch.testing.assert_close(told, torch.full_like(told, 0.02))


@pytest.mark.parametrize("name", BACKBONES)
def test_pictures_of_a_batch_do_not_mix(name):
    rgb01, zoe_m = inputs()
    refiner = trained(name)
    with torch.no_grad():
        both = refiner(rgb01, zoe_m)
        one = refiner(rgb01[:1], zoe_m[:1])
    torch.testing.assert_close(both[:1], one)


@pytest.mark.parametrize("name", BACKBONES)
def test_gradient_reaches_every_parameter(name):
    refiner = trained(name).train()
    refiner(*inputs(4)).mean().backward()
    without = [n for n, p in refiner.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize(("bias", "truth"), [(30.0, 1.0), (-30.0, 9.0)])
def test_what_is_told_beyond_the_bound_learns_to_come_back(name, bias, truth):
    refiner = build_refiner(name, 8, 0.5)
    head = refiner.get_parameter("backbone.head.bias")
    torch.nn.init.constant_(head, bias)
    rgb01, zoe_m = inputs()
    refined = refiner(rgb01, zoe_m)
    assert (refined / zoe_m).log().abs().min() > 0.499  # all of it
    (refined - truth).square().mean().backward()
    assert head.grad is not None
    wanted = (refined > truth) if bias > 0 else (refined < truth)
    assert wanted.any()
    assert head.grad.sign() == (1 if bias > 0 else -1)  # a step goes against it


def test_what_is_told_beyond_the_bound_is_not_driven_further_out():
    refiner = build_refiner("small", 8, 0.5)
    head = refiner.get_parameter("backbone.head.bias")
    torch.nn.init.constant_(head, 30.0)
    rgb01, zoe_m = inputs()
    (refiner(rgb01, zoe_m) - 100).square().mean().backward()
    assert not head.grad.any()


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("bias", [1e4, -1e4])
def test_gradients_of_depth_beyond_any_number_are_numbers(name, bias):
    refiner = build_refiner(name, 8, 2.0)
    torch.nn.init.constant_(refiner.get_parameter("backbone.head.bias"), bias)
    refiner(*inputs()).mean().backward()
    assert all(p.grad.isfinite().all() for p in refiner.parameters() if p.grad is not None)


def test_two_forwards_may_share_a_backward():
    refiner = build_refiner("small", 8, 1.0)
    (refiner(*inputs(seed=1)).mean() + refiner(*inputs(seed=2)).mean()).backward()


@pytest.mark.parametrize("name", ["small", "unet"])
def test_depth_is_finer_than_bfloat16_under_autocast(name):
    refiner = trained(name)
    rgb01, zoe_m = inputs()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        told = refiner.backbone(torch.randn(1, 5, 64, 64))
        assert refiner(rgb01, zoe_m).dtype == torch.float32
    assert told.dtype == torch.float32
    assert not torch.equal(told, told.bfloat16().float())


@given(height=st.integers(1, 500))
def test_rows_are_their_centres_between_the_picture_s_edges(height):
    rows = rows_of(torch.zeros(2, 1, height, 3))
    assert rows.shape == (2, 1, height, 3)
    edges = torch.linspace(-1, 1, height + 1)
    torch.testing.assert_close(rows[1, 0, :, 2], (edges[:-1] + edges[1:]) / 2)


def test_unknown_refiners_and_bad_sizes_are_refused_by_name():
    with pytest.raises(UserError, match=r"MODEL\.NAME 'huge' is no refiner; known: small, unet"):
        build_refiner("huge", 8, 1.0)
    with pytest.raises(UserError, match=r"MODEL\.BASE"):
        build_refiner("small", 0, 1.0)
