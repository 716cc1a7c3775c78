"""The evaluation: the same figures in any grouping, and the details by class, speed and depth."""

import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from zoerefine.base.registries import LOSS_TERMS
from zoerefine.depth.data.cache.cache import BROKEN
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.frame_names import follows
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.prefetch import Prefetcher
from zoerefine.depth.data.loading.sampler import OrderOptions, Sampler
from zoerefine.depth.loss import Loss
from zoerefine.depth.training.evaluate import evaluate

pytestmark = pytest.mark.numeric


class Tenth(nn.Module):
    """Predicts a tenth more than the pseudo depth."""

    def forward(self, rgb01, zoe_m):
        return zoe_m * 1.1


class Spoiled(nn.Module):
    """Makes one pixel in a hundred NaN."""

    def forward(self, rgb01, zoe_m):
        spoiled = zoe_m.clone()
        spoiled.flatten()[::100] = math.nan
        return spoiled


def batches_of(packed, indices, size):
    sampler = Sampler(packed, indices, size, 0, OrderOptions("sequential"))
    return Prefetcher(Loader(packed, sampler), torch.device("cpu"))


def figures(packed, batch, refiner=None):
    batches = batches_of(packed, np.arange(len(packed)), batch)
    return evaluate(refiner or Tenth(), batches, 0.2, packed, torch.float32, detail=True)


def flicker(packed, indices):
    found = evaluate(Tenth(), batches_of(packed, indices, 4), 0.2, packed, torch.float32, True)
    return found["detail"]["pseudo"]["flicker"]


def test_any_grouping_into_batches_gives_the_same_bits(packed):
    assert figures(packed, 16) == figures(packed, 3) == figures(packed, 1)


def test_nan_depth_makes_means_nan_and_lowers_deltas_and_boundary_f1(packed):
    found = figures(packed, 5, Spoiled())
    refined, pseudo = found["refined"], found["pseudo"]
    assert all(math.isnan(refined[name]) for name in ("abs_rel", "rmse", "silog"))
    assert refined["delta3"] < pseudo["delta3"]
    detail = found["detail"]
    for name in ("object_distance_m", "object_distance_rel", "flicker"):
        assert math.isnan(detail["refined"][name]), name
    assert detail["refined"]["boundary_f1"] < detail["pseudo"]["boundary_f1"]


def test_detailed_metrics_cover_every_depth(packed):
    found = figures(packed, 5)
    assert found["ratio"]["abs_rel"] == pytest.approx(
        found["refined"]["abs_rel"] / found["pseudo"]["abs_rel"]
    )
    for group in (found["objects"], *found["scenes"].values()):
        assert group["ratio"]["rmse"] == pytest.approx(
            group["refined"]["rmse"] / group["pseudo"]["rmse"]
        )
    refined, pseudo, ratio = (found["detail"][name] for name in ("refined", "pseudo", "ratio"))
    assert ratio["boundary_f1"] == refined["boundary_f1"] / pseudo["boundary_f1"]
    for kind in ("ranges", "classes", "speeds"):
        for name, values in refined[kind].items():
            theirs = pseudo[kind][name]["abs_rel"]
            assert ratio[kind][name]["abs_rel"] == values["abs_rel"] / theirs
    refined, pseudo = found["detail"]["refined"], found["detail"]["pseudo"]
    assert refined["ranges"].keys() == pseudo["ranges"].keys() <= {
        "0-1 m", "1-2 m", "2-4 m", "4-10 m"}  # fmt: skip
    assert all(name.endswith(" m/s") for name in refined["speeds"])
    assert set(refined["classes"]) <= {"people", "toy car", "robot", "dog", "cat", "several"}
    assert 0 < refined["boundary_f1"] <= 1
    # A constant factor moves no edge, adds no flicker (but for the clamp at 10 m), and moves every
    # object by a tenth.
    assert refined["flicker"] == pytest.approx(pseudo["flicker"], rel=0.05)
    assert refined["boundary_f1"] == pytest.approx(pseudo["boundary_f1"], abs=1e-3)
    assert refined["object_distance_m"] != pseudo["object_distance_m"]


def test_no_flicker_is_counted_across_a_frame_that_was_left_out(packed):
    broken = packed.frames.copy()
    first = np.flatnonzero(broken["clip"] == 0)
    broken["state"][first[1]] = BROKEN
    usable = replace(packed, frames=broken).indices(packed.scenes)
    assert len(usable) == len(packed) - 1
    whole_clips = np.flatnonzero(broken["clip"] != 0)
    kept = flicker(packed, np.r_[first[2:], whole_clips])  # the first frame has no neighbour left
    assert flicker(packed, usable) == pytest.approx(kept)
    assert kept != pytest.approx(flicker(packed, np.arange(len(packed))))


def test_no_flicker_is_counted_across_a_frame_that_was_deleted(packed, world, tmp_path):
    second = open_dataset(world).frames[1]
    shutil.copytree(world, tmp_path / "world")
    (tmp_path / "world" / second.rgb.relative_to(world)).unlink()
    less = build_cache(open_dataset(tmp_path / "world"), 24, 32, tmp_path, mode="off")
    assert len(less) == len(packed) - 1
    left_out = np.delete(np.arange(len(packed)), 1)
    assert flicker(less, np.arange(len(less))) == pytest.approx(flicker(packed, left_out))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["0", "1", "2", "4", "5"], [0, 1, 1, 0, 1]),
        (["f000", "f010", "f020", "f040"], [0, 1, 1, 0]),
        (["7", "8", "10"], [0, 1, 0]),
        (["cam1_5.00", "cam1_5.04", "cam1_5.07", "cam1_5.14", "cam1_5.17"], [0, 1, 1, 0, 1]),
        (["12_900", "12_950", "13_000", "13_050"], [0, 1, 1, 1]),
        (["left", "middle", "right"], [0, 1, 1]),  # names tell nothing
        (["9", "4", "20"], [0, 1, 1]),  # of a list by time
        (["1"], [0]),
        ([], []),
    ],
)
def test_names_tell_that_frames_are_missing(names, expected):
    assert follows(names).tolist() == list(map(bool, expected))


def test_the_loss_on_validation_scenes_is_the_mean_over_pictures_in_any_grouping(packed):
    loss = Loss([{"name": "mse", "weight": 2.0}, {"name": "l1", "weight": 1.0}], 0.5)

    def batches(size):
        return batches_of(packed, np.arange(7), size)

    def losses(size):
        return evaluate(Tenth(), batches(size), 0.0, packed, torch.float32, loss=loss)["losses"]

    found = losses(3)
    alone = [loss(b.zoe_m * 1.1, b.zoe_m, b.depth_m, b.objects, b.rgb01) for b in batches(1)]
    for name in ("mse", "l1"):
        assert found[name] == pytest.approx(sum(terms[name].item() for _, terms in alone) / 7)
    assert found["loss"] == pytest.approx(2 * found["mse"] + found["l1"])
    assert losses(7) == found == losses(1)


class Operations(TorchDispatchMode):
    """Counts what torch computes: on a GPU each is a kernel, at least."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **(kwargs or {}))


def test_a_batch_of_more_pictures_takes_no_more_operations(packed):
    """An operation for each picture would cost a GPU more time than the training does."""
    loss = Loss([{"name": name, "weight": 1.0} for name in LOSS_TERMS], 0.5)
    same_scene = packed.indices(packed.scenes[:1])

    def operations(pictures):
        [batch] = batches_of(packed, same_scene[:pictures], pictures)
        with Operations() as found:
            evaluate(Tenth(), [batch], 0.0, packed, torch.float32, loss=loss)
        return found.count

    assert operations(2) == operations(6)
