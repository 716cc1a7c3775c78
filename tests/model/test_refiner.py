"""The refiner: identity when untrained, bounded, any size, one picture at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.errors import UserError
from zoerefine.model import BACKBONES, build_refiner
from zoerefine.model.refiner import rows_of


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
