"""Samplers: pure functions of (seed, epoch), each as random as it says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.base.errors import UserError
from zoerefine.depth.data.cache.cache import PACKED, frame_dtype, make_cache
from zoerefine.depth.data.loading.sampler import ORDERS, OrderOptions, Sampler


def cache_with(sizes):
    """A cache with `sizes` frames in its scenes, two clips each, and no records."""
    frames = np.zeros(sum(sizes), frame_dtype(4))
    frames["state"] = PACKED
    frames["clip"] = np.concatenate(
        [np.repeat([2 * k, 2 * k + 1], [n // 2, n - n // 2]) for k, n in enumerate(sizes)]
    )
    clips = [
        {"name": f"{k:04d}", "scene": f"s{k // 2}", "title": "", "speed": 0, "classes": []}
        for k in range(2 * len(sizes))
    ]
    header = {"digest": "", "label": "", "pseudo_label": "", "height": 1,
              "width": 1, "depth_scale": 1.0, "zoe_scale": 1.0, "clips": clips}  # fmt: skip
    return make_cache(header, frames, None, None)


def sampler(sizes, batch=4, seed=0, **options):
    cache = cache_with(sizes)
    return Sampler(cache, np.arange(len(cache)), batch, seed, OrderOptions(**options))


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(2, 30), min_size=1, max_size=5),
    batch=st.integers(1, 9),
    order=st.sampled_from(sorted(ORDERS)),
    seed=st.integers(0, 3),
    rotate=st.integers(0, 2),
)
def test_an_epoch_is_a_function_of_its_number_and_a_step_finds_its_batch(
    sizes, batch, order, seed, rotate
):
    options = {"order": order, "rotate_every": rotate, "rotate_scenes": 1, "window": 8}
    first, again = (sampler(sizes, batch, seed, **options) for _ in range(2))
    for epoch in (2, 0, 1):
        ours, theirs = first.order(epoch), again.order(epoch)
        np.testing.assert_array_equal(ours.index, theirs.index)
        np.testing.assert_array_equal(ours.ends, theirs.ends)
        assert len(ours.ends) == first.batches(epoch)
        assert ours.ends[-1] == len(ours.index) == first.samples(epoch)
        assert (np.diff(ours.ends, prepend=0) <= batch).all()
    for step in range(first.steps(3)):
        epoch, number = first.locate(step)
        assert first.steps(epoch) + number == step
        assert number < first.batches(epoch)


@pytest.mark.parametrize("order", ["shuffle", "windowed", "sequential", "clips"])
def test_every_sample_comes_once(order):
    found = sampler([20, 7, 40], order=order).order(3).index
    assert sorted(found.tolist()) == list(range(67))


def test_with_replacement_some_samples_come_twice_and_all_are_known():
    found = sampler([50, 50], order="replacement").order(0).index
    assert len(found) == 100
    assert 50 < len(set(found.tolist())) < 80  # 63 on average
    assert set(found.tolist()) <= set(range(100))


def test_weighted_scenes_are_drawn_by_their_weights_whatever_their_size():
    counts = scene_counts(sampler([100, 9900], order="weighted"))
    np.testing.assert_allclose(counts / counts.sum(), [0.5, 0.5], atol=0.03)
    weighted = sampler([5000, 2000, 3000], order="weighted", scene_weights={"s0": 3, "s2": 0})
    counts = scene_counts(weighted)
    np.testing.assert_allclose(counts / counts.sum(), [0.75, 0.25, 0], atol=0.03)


def scene_counts(made):
    return np.bincount(made.scenes[made.order(0).index], minlength=len(made.scene_names))


def test_a_rotation_keeps_its_scenes_for_its_epochs_then_takes_others():
    made = sampler([10] * 12, rotate_every=3, rotate_scenes=4)
    scenes = [frozenset(made.scenes[made.order(epoch).index].tolist()) for epoch in range(12)]
    assert all(len(names) == 4 for names in scenes)
    assert all(len(set(scenes[k : k + 3])) == 1 for k in range(0, 12, 3))
    assert len(set(scenes)) > 1
    assert made.order(0).index.tolist() != made.order(1).index.tolist()


def test_clips_come_whole_and_in_the_order_of_the_film():
    made = sampler([10, 7, 9], batch=4, order="clips")
    order = made.order(1)
    for number in range(len(order.ends)):
        batch = order.batch(number)
        assert len(set(made.clips[batch].tolist())) == 1
        assert (np.diff(batch) == 1).all()
    assert made.order(1).index.tolist() != made.order(2).index.tolist()


@pytest.mark.parametrize(("window", "tolerance"), [(1024, 0.15), (8192, 0.2)])
def test_a_windowed_shuffle_is_as_random_as_documented(window, tolerance):
    count, batch = 65536, 64
    made = sampler([count], batch, order="windowed", window=window)
    documented = (batch - 1) / (window - 1)
    found = np.mean([neighbours(made.order(epoch).index, batch) for epoch in range(5)])
    # Of 64 neighbours in a block 63 share the block; the others are almost never together.
    assert found == pytest.approx(documented * 63 / 64, rel=tolerance)
    full = neighbours(sampler([count], batch).order(0).index, batch)
    assert full == pytest.approx((batch - 1) / (count - 1), abs=0.002)


def neighbours(index, batch):
    """How often frames that follow one another share a batch."""
    number = np.empty(len(index), int)
    number[index] = np.arange(len(index)) // batch
    return (number[1:] == number[:-1]).mean()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rotate_every": 1, "rotate_scenes": 3}, r"LOADER\.ROTATE_SCENES must be 1 to 2"),
        ({"scene_weights": {"attic": 1}}, "attic is no scene"),
        ({"scene_weights": {"s0": 0, "s1": 0}}, "needs a weight above 0"),
    ],
)
def test_an_impossible_option_is_named(options, words):
    with pytest.raises(UserError, match=words):
        sampler([4, 4], **options)
