"""Losses: known values, masks, the weighting of moving objects, finite gradients."""

import math

import numpy as np
import pytest
import torch

from zoerefine.base.registries import LOSS_TERMS
from zoerefine.depth.loss import Loss

pytestmark = pytest.mark.numeric


def batch(seed=0, height=9, width=11):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(2, 1, height, width, generator=generator) * 8 + 0.5
    refined = truth * torch.exp(0.3 * torch.randn(truth.shape, generator=generator))
    truth[torch.rand(truth.shape, generator=generator) < 0.3] = 0
    objects = (torch.rand(truth.shape, generator=generator) < 0.2).to(torch.uint8)
    return refined, torch.ones_like(truth), truth, objects


def value(name, refined, zoe, truth, objects, object_weight=0.5, rgb=None):
    rgb = torch.zeros_like(truth).expand(-1, 3, -1, -1) if rgb is None else rgb
    return Loss([{"name": name, "weight": 1.0}], object_weight)(refined, zoe, truth, objects, rgb)[
        0
    ]


def test_terms_equal_their_formulas():
    refined, zoe, truth, objects = batch()
    keep = truth > 0
    e = (refined - truth)[keep].double()
    g = refined[keep].double().log() - truth[keep].double().log()
    c = e.abs().max() / 5
    expected = {
        "mse": e.square().mean(),
        "l1": e.abs().mean(),
        "l1_log": g.abs().mean(),
        "silog": 10 * math.sqrt(g.var(unbiased=False) + 0.15 * g.mean() ** 2),
        "berhu": torch.where(e.abs() <= c, e.abs(), (e**2 + c**2) / (2 * c)).mean(),
    }
    for name, wanted in expected.items():
        ours = value(name, refined, zoe, truth, objects).item()
        assert ours == pytest.approx(float(wanted), rel=1e-4), name


@pytest.mark.parametrize("name", LOSS_TERMS)
def test_loss_and_gradient_are_finite_without_a_valid_pixel(name):
    refined, zoe, truth, objects = batch()
    refined.requires_grad_()
    loss = value(name, refined, zoe, truth * 0, objects)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-2)
    assert refined.grad.isfinite().all()


@pytest.mark.parametrize("name", LOSS_TERMS)
@pytest.mark.parametrize("junk", [math.nan, math.inf, 0.0, 1e4])
def test_the_depth_at_an_invalid_pixel_does_not_matter(name, junk):
    refined, zoe, truth, objects = batch()
    expected = value(name, refined, zoe, truth, objects)
    spoiled = torch.where(truth > 0, refined, junk).requires_grad_()
    nan_truth = torch.where(truth > 0, truth, math.nan)
    loss = value(name, spoiled, zoe, nan_truth, objects)
    loss.backward()
    assert torch.equal(loss.detach(), expected)
    assert spoiled.grad.isfinite().all()


@pytest.mark.parametrize("name", LOSS_TERMS)
def test_a_picture_of_a_single_pixel_has_a_loss(name):
    one = torch.ones(1, 1, 1, 1)
    loss = value(name, (2 * one).requires_grad_(), one, one, one.byte())
    loss.backward()
    known = {"mse": 1, "l1": 1, "l1_log": math.log(2), "silog": 10 * 0.15**0.5 * math.log(2),
             "berhu": 2.6, "gradient": 0, "normals": 0, "smoothness": 0}  # fmt: skip
    assert loss.item() == pytest.approx(known[name], rel=1e-3)


def test_normals_term_equals_its_formula():
    refined, zoe, truth, objects = batch()
    total, count = 0.0, 0
    for d, t in zip(refined[:, 0].double().numpy(), truth[:, 0].double().numpy(), strict=True):
        for y in range(8):
            for x in range(10):
                if min(t[y, x], t[y, x + 1], t[y + 1, x]) <= 0:
                    continue
                vectors = []
                for z in (d, t):
                    right = math.log(z[y, x + 1] / z[y, x])
                    below = math.log(z[y + 1, x] / z[y, x])
                    vector = np.array([-100 * right, -100 * below, 1.0])
                    vectors.append(vector / np.linalg.norm(vector))
                total, count = total + 1 - vectors[0] @ vectors[1], count + 1
    ours = value("normals", refined, zoe, truth, objects).item()
    assert ours == pytest.approx(total / count, rel=1e-4)


def test_smoothness_weighs_depth_edges_less_at_picture_edges():
    refined = torch.tensor([1.0, math.e]).expand(1, 1, 2, 2)
    truth, objects = torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
    flat = value("smoothness", refined, truth, truth, objects)
    assert flat.item() == pytest.approx(1)  # a step of 1 to the right, none below
    edge = torch.tensor([0.0, 0.2]).expand(1, 3, 2, 2)
    stepped = value("smoothness", refined, truth, truth, objects, rgb=edge)
    assert stepped.item() == pytest.approx(math.exp(-2))


@pytest.mark.parametrize("name", ["l1_log", "silog", "gradient", "normals", "smoothness"])
def test_log_terms_do_not_change_when_both_depths_are_scaled(name):
    refined, zoe, truth, objects = batch()
    first = value(name, refined, zoe, truth, objects).item()
    assert value(name, refined * 3, zoe, truth * 3, objects).item() == pytest.approx(
        first, rel=1e-4
    )


def test_object_weight_1_counts_objects_alone_and_0_all_else():
    refined, zoe, truth, objects = batch()
    inside = (truth > 0) & (objects > 0)
    outside = (truth > 0) & (objects == 0)
    error = (refined - truth).abs()
    on_objects = value("l1", refined, zoe, truth, objects, object_weight=1.0)
    elsewhere = value("l1", refined, zoe, truth, objects, object_weight=0.0)
    assert on_objects.item() == pytest.approx(error[inside].mean().item(), rel=1e-5)
    assert elsewhere.item() == pytest.approx(error[outside].mean().item(), rel=1e-5)


@pytest.mark.parametrize("name", ["mse", "l1_log", "silog", "berhu", "gradient", "normals"])
def test_every_term_weighs_moving_objects(name):
    refined, zoe, truth, objects = batch()
    other, *_ = batch(seed=1)
    beside = torch.where(objects > 0, refined, other)
    on_objects = [value(name, one, zoe, truth, objects, 1.0).item() for one in (refined, beside)]
    assert on_objects[0] == on_objects[1] > 0
    elsewhere = [value(name, one, zoe, truth, objects, 0.0).item() for one in (refined, beside)]
    assert elsewhere[0] != elsewhere[1]


def test_the_gradient_term_covers_both_directions():
    """Scale 1: |1|, |0|, so 1/2 in the mean; scale 2: pixels 0 and 2, so 1; coarser: nothing."""
    truth, objects = torch.ones(1, 1, 3, 3), torch.zeros(1, 1, 3, 3, dtype=torch.uint8)
    along = torch.tensor([1.0, math.e, math.e]).expand(1, 1, 3, 3)
    for refined in (along, along.transpose(2, 3)):
        assert value("gradient", refined, truth, truth, objects).item() == pytest.approx(1.5)


def test_weights_add_up_and_terms_are_reported():
    tensors = batch()
    loss = Loss([{"name": "l1", "weight": 2.0}, {"name": "mse", "weight": 0.5}], 0.5)
    total, terms = loss(*tensors, torch.zeros(2, 3, 9, 11))
    assert total.item() == pytest.approx(2 * terms["l1"].item() + 0.5 * terms["mse"].item())


@pytest.mark.parametrize("name", [*LOSS_TERMS, "masked"])
def test_the_loss_of_each_picture_is_that_of_a_batch_of_one(name, monkeypatch):
    def masked(x):
        return (x.refined_m - x.truth_m)[x.weight > 0].square().mean()  # vmap refuses this

    loss = Loss([{"name": name if name in LOSS_TERMS else "l1", "weight": 2.0}], 0.7)
    if name == "masked":
        monkeypatch.setitem(loss.functions, "l1", masked)
    refined, zoe, truth, objects = batch()
    rgb = torch.rand(2, 3, *truth.shape[2:], generator=torch.Generator().manual_seed(1))
    inputs = refined, zoe, truth, objects, rgb
    totals, terms = loss.of_each_picture(*inputs)
    for number in range(2):
        total, of_one = loss(*(one[number : number + 1] for one in inputs))
        assert totals[number].item() == total.item()
        assert {key: values[number].item() for key, values in terms.items()} == {
            key: value.item() for key, value in of_one.items()
        }
