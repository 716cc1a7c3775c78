"""Engines of a refiner that takes metric points."""

import numpy as np
import pytest
import torch

from tests.depth.exporting.test_engines import BUILT_HERE
from tests.depth_fixtures import train_tiny
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.depth.data.metric_points import NO_POINTS
from zoerefine.depth.exporting.build import EngineBuilder, make_manifest
from zoerefine.depth.exporting.bundle.bundle import load_bundle
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.model_card import inputs_and_outputs
from zoerefine.depth.infer import Refiner
from zoerefine.depth.points import HINTS, RGB, MetricPoints
from zoerefine.depth.points.for_engines import corrected, hinted
from zoerefine.depth.training.checkpoint import load_refiner, save_best

pytestmark = pytest.mark.numeric


@pytest.fixture(scope="module")
def builder(world, tmp_path_factory):
    """Builds engines of a run whose refiner takes points; its heads are random."""
    folder = tmp_path_factory.mktemp("with_points")
    run = train_tiny(folder, world, "TRAIN.EPOCHS", "1", "MODEL.POINTS", "True")
    refiner = load_refiner(run)
    torch.manual_seed(0)
    torch.nn.init.normal_(refiner.get_parameter("backbone.head.weight"), std=0.3)
    calibration = {
        "log_factor": 0.2, "strength": 0.5, "limit": 0.1, "spread_factor": 2.0,
        "point_strength": 1.0, "point_limit": 0.3,
    }  # fmt: skip
    for name, value in calibration.items():
        refiner.get_buffer(name).fill_(value)
    save_best(run, refiner.state_dict())
    return EngineBuilder(run)


@pytest.fixture(
    scope="module", params=[one for one in BUILT_HERE if one[1] == "fp32"], ids=" ".join
)
def engine(request, builder):
    name, precision = request.param
    return load_bundle(builder.bundle(engine_kind(name), precision))


def points_at(*rows):
    return MetricPoints(*np.array(rows, float).T)


POINTS = points_at([5, 6, 2.5, 0], [30, 20, 1.5, 0.1], [20, 3, 3.0, 0])


def one_frame(frames, height=24, width=32):
    (rgb,), (zoe,) = frames(1, height, width)
    zoe[:, :3] = 0
    return rgb, zoe


@pytest.mark.parametrize("size", [(24, 32), (37, 51)])
def test_it_agrees_with_eager_with_and_without_points(engine, builder, frames, size):
    rgb, zoe = one_frame(frames, *size)
    eager = builder.eager(torch.device("cpu"))
    for points in (POINTS, NO_POINTS):
        picture, depth = hinted(rgb, zoe, points)
        assert picture.shape == (*size, RGB + HINTS)
        with torch.inference_mode():
            inputs = torch.from_numpy(picture)[None], torch.from_numpy(depth)[None]
            expected = [one.numpy().astype(float) for one in eager(*inputs)]
        found = engine.arrays(picture[None], depth[None])
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours == 0).tolist() == (theirs == 0).tolist()
            np.testing.assert_allclose(ours, theirs, rtol=0.002, atol=2)


def test_a_picture_without_hints_is_one_without_points(engine, frames):
    rgb, zoe = one_frame(frames)
    picture, depth = hinted(rgb, zoe, NO_POINTS)
    np.testing.assert_array_equal(depth, zoe)
    plain = engine(rgb[None], zoe[None])
    np.testing.assert_array_equal(plain, engine(picture[None], depth[None]))
    depth, _ = engine.outputs(torch.from_numpy(rgb)[None], torch.from_numpy(zoe)[None])
    np.testing.assert_array_equal(plain, depth.numpy())


def test_the_model_card_states_the_channels_of_points(builder):
    run = builder.run
    manifest = make_manifest(run, "torchscript", "fp32", RGB + HINTS)
    assert "0, 128, 0, 128" in inputs_and_outputs(
        load_config(run.config_file), manifest | {"outputs": {}}, run.read_json(run.results_file)
    )


def test_a_refiner_takes_points_of_one_picture(engine, frames):
    rgb, zoe = one_frame(frames)
    refiner = Refiner(engine)
    picture, depth = hinted(rgb, zoe, POINTS)
    expected = corrected(engine(picture[None], depth[None])[0], POINTS)
    np.testing.assert_array_equal(refiner(rgb, zoe, POINTS), expected)
    in_metres = refiner(rgb, torch.from_numpy(zoe / np.float32(256)), POINTS)
    np.testing.assert_allclose(in_metres, expected / 256, atol=1e-6)
    assert (expected != refiner(rgb, zoe)).mean() > 0.9
    with pytest.raises(UserError, match="points are a ndarray; give"):
        refiner(rgb, zoe, np.array([[5, 6, 2.5]]))
    with pytest.raises(UserError, match="metric points are of one picture"):
        refiner(rgb[None].repeat(2, 0), zoe[None].repeat(2, 0), POINTS)
