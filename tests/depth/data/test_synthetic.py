"""The synthetic world: HabitatDyn's files, the same bytes again, exact depth, realistic errors."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from zoerefine.base.errors import UserError
from zoerefine.depth.data.cache.decode import read_depth, read_objects, read_zoe
from zoerefine.depth.data.depth_codec import HABITATDYN, ZOE_UNIT_M
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.data.synthetic.errors import clip_errors, drift
from zoerefine.depth.data.synthetic.render import SyntheticCamera, render
from zoerefine.depth.data.synthetic.world import Pose, Scene, Solid, make_texture, rotation

SMALL = {"scenes": 2, "clips": 1, "frames": 2, "seed": 7, "height": 48, "width": 64}


def contents(root):
    return {p.relative_to(root): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(tmp_path):
    synthesize(tmp_path / "a", **SMALL, workers=1)
    synthesize(tmp_path / "b", **SMALL, workers=3)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    synthesize(tmp_path / "c", **(SMALL | {"seed": 8}))
    assert contents(tmp_path / "c") != contents(tmp_path / "a")


def test_files_and_encodings_are_those_of_habitatdyn(tmp_path):
    root = tmp_path / "world"
    synthesize(root, **SMALL)
    titles = (root / "video_name_mapping.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in titles] == ["0000", "0054"]
    assert all(line.rpartition("_")[2] in "123" for line in titles)
    annotations = root / "habitat_sim_DAVIS" / "Annotations"
    for path, dtype in (
        (annotations / "480p" / "0000" / "00001.png", np.uint8),
        (annotations / "480p_depth" / "0000" / "00001.png", np.uint8),
        (annotations / "480p_objectID" / "0000" / "00001.png", np.uint8),
        (root / "zoe_depth_raw" / "0000" / "00001.png", np.uint16),
    ):
        image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert (image.dtype, image.shape) == (dtype, (48, 64)), path
    jpg = root / "habitat_sim_DAVIS" / "JPEGImages" / "480p" / "0054" / "00001.jpg"
    assert cv2.imread(str(jpg)).shape == (48, 64, 3)
    assert json.loads((root / "synthetic.json").read_text())["seed"] == 7


def test_a_world_is_used_again_and_another_is_not_overwritten(tmp_path, capsys):
    root = tmp_path / "world"
    synthesize(root, **SMALL)
    before = contents(root)
    synthesize(root, **SMALL)
    assert "using the synthetic world" in capsys.readouterr().err
    with pytest.raises(UserError, match="holds something else"):
        synthesize(root, **(SMALL | {"seed": 8}))
    assert contents(root) == before
    with pytest.raises(UserError, match="name a folder"):
        synthesize(".", **SMALL)
    with pytest.raises(UserError, match="a world has 1 or more"):
        synthesize(tmp_path / "none", **(SMALL | {"frames": 0}))


def test_a_killed_generation_is_removed_by_the_next_one(tmp_path, wait_until):
    code = (
        "import sys; from zoerefine.depth.data.synthetic import synthesize\n"
        "synthesize(sys.argv[1], 4, 1, 50, 0)"
    )
    foreign = tmp_path / ".world.01234567.tmp" / "notes.txt"
    foreign.parent.mkdir()
    foreign.write_text("mine")
    writer = subprocess.Popen([sys.executable, "-c", code, tmp_path / "world"])
    wait_until(lambda: list(tmp_path.glob(".world*/zoe_depth_raw/*/*.png")), writer)
    writer.kill()
    writer.wait()
    assert not (tmp_path / "world").exists()
    synthesize(tmp_path / "world", **SMALL)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"world", foreign.parent.name}
    assert foreign.read_text() == "mine"


def test_two_writers_of_one_world_take_turns(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(synthesize, tmp_path / "world", **SMALL) for _ in range(2)]:
            done.result()
    assert [path.name for path in tmp_path.iterdir()] == ["world"]


def empty_room(furniture=()):
    texture = make_texture(np.random.default_rng(0))
    size = np.array([6, 3, 8], np.float32)
    light = np.array([3, 2.5, 4], np.float32)
    return Scene(size, (texture,) * 6, tuple(furniture), light, 1.25, np.pi / 8)


def test_depth_of_floor_and_wall_is_analytic():
    camera = SyntheticCamera(48, 64)
    origin = np.array([3, 1.25, 4], np.float32)
    level = render(camera, empty_room(), Pose(origin, rotation(0.0, 0.0)), [])
    # Looking along +z from z = 4: the far wall at z = 8 is 4 m away at every pixel that shows it.
    np.testing.assert_allclose(level.depth_m[24, 32], 4, rtol=1e-5)
    # The floor at row v lies at height / ((v - cy) / f) along the axis.
    rows = np.arange(40, 48)
    expected = 1.25 / ((rows + 0.5 - 24) / 32)
    np.testing.assert_allclose(level.depth_m[rows, 32], expected, rtol=1e-4)
    pitched = render(camera, empty_room(), Pose(origin, rotation(0.0, np.pi / 8)), [])
    v = (40 + 0.5 - 24) / 32
    expected = 1.25 / (np.sin(np.pi / 8) + v * np.cos(np.pi / 8))
    np.testing.assert_allclose(pitched.depth_m[40, 32], expected, rtol=1e-4)


@pytest.mark.parametrize("shape", ["box", "cylinder"])
def test_a_solid_is_nearer_than_the_room_and_has_its_id(shape):
    texture = make_texture(np.random.default_rng(1))
    half = np.array([0.4, 0.6, 0.4], np.float32)
    solid = Solid(shape, np.array([3, 1.25, 6], np.float32), half, 0.0, texture)
    pose = Pose(np.array([3, 1.25, 4], np.float32), rotation(0.0, 0.0))
    view = render(SyntheticCamera(48, 64), empty_room(), pose, [solid])
    bare = render(SyntheticCamera(48, 64), empty_room(), pose, [])
    np.testing.assert_allclose(view.depth_m[24, 32], 2 - 0.4, rtol=1e-3)
    assert view.ids[24, 32] == 1
    assert (view.depth_m[view.ids == 1] < bare.depth_m[view.ids == 1]).all()
    assert np.array_equal(view.depth_m[view.ids == 0], bare.depth_m[view.ids == 0])
    # Nothing behind the camera is drawn.
    behind = Solid(shape, np.array([3, 1.25, 2], np.float32), half, 0.0, texture)
    assert not render(SyntheticCamera(48, 64), empty_room(), pose, [behind]).ids.any()


def test_the_scale_drifts_like_that_of_a_real_recording():
    rng = np.random.default_rng(0)
    scales = np.stack([clip_errors(rng, 400, 1).scale for _ in range(200)])
    for lag, low, high in ((2, 0.85, 0.97), (10, 0.75, 0.92), (30, 0.5, 0.75), (100, 0.1, 0.4)):
        r = np.corrcoef(scales[:, :-lag].ravel(), scales[:, lag:].ravel())[0, 1]
        assert low < r < high, lag
    assert abs(drift(rng, 5000, 0.5, (10,)).std() - 1) < 0.05


def test_errors_have_the_size_and_the_shares_of_a_real_networks(tmp_path):
    synthesize(tmp_path / "world", 12, 1, 2, seed=3, height=120, width=160)
    dataset = open_dataset(tmp_path / "world")
    scale, warp, fine, abs_rel, objects = [], [], [], [], []
    for frame in dataset.frames:
        depth_m = read_depth(frame.depth, HABITATDYN) * HABITATDYN.u16_unit_m
        zoe_m = read_zoe(frame.zoe) * ZOE_UNIT_M
        valid = depth_m > 0
        g = np.where(valid, np.log(zoe_m / np.where(valid, depth_m, 1)), 0).astype(np.float32)
        low = cv2.GaussianBlur(g, (0, 0), 10)  # 40 pixels at 640x480
        scale.append(g.mean() ** 2)
        warp.append(low.var())
        fine.append((g - cv2.GaussianBlur(g, (0, 0), 2)).var())
        abs_rel.append((np.abs(zoe_m - depth_m)[valid] / depth_m[valid]).mean())
        objects.append(read_objects(frame.objects).any())
    total = np.mean(scale) + np.mean(warp) + np.mean(fine)
    assert 0.2 < np.mean(abs_rel) < 0.45
    assert 0.2 < np.mean(scale) / total < 0.65
    assert 0.2 < np.mean(warp) / total < 0.65
    assert np.mean(fine) / total < 0.25
    assert np.mean(objects) > 0.3
