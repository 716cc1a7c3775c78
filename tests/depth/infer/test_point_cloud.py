"""Point clouds: the geometry of a pinhole camera, and files that follow the PLY format."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from zoerefine.base.files.images import read_rgb
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.infer.point_cloud import CameraOptions, back_project, ply

cameras = st.builds(
    Intrinsics, st.floats(1, 5000), st.floats(1, 5000), st.floats(-10, 700), st.floats(-10, 700)
)
sizes = st.tuples(st.integers(1, 12), st.integers(1, 12))
depths = sizes.flatmap(lambda size: arrays(np.float64, size, elements=st.floats(0.01, 100)))


@given(depths, cameras)
def test_points_project_to_the_pixels_that_they_come_from(depth_m, camera):
    points = back_project(depth_m, camera)
    matrix = np.array([[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy], [0, 0, 1]])
    u, v, w = np.moveaxis(points @ matrix.T, -1, 0)
    rows, columns = np.indices(depth_m.shape)
    np.testing.assert_allclose(u / w, columns, atol=1e-6)
    np.testing.assert_allclose(v / w, rows, atol=1e-6)
    np.testing.assert_array_equal(points[..., 2], depth_m)


@given(st.integers(2, 4000), st.integers(2, 4000), st.floats(1, 179))
def test_the_field_of_view_spans_the_picture_from_edge_to_edge(height, width, fov_deg):
    camera = CameraOptions(None, fov_deg).camera(height, width)
    # A pixel's edge is half a pixel from its centre.
    left = np.arctan((camera.cx + 0.5) / camera.fx)
    right = np.arctan((width - 0.5 - camera.cx) / camera.fx)
    assert np.degrees(left + right) == pytest.approx(fov_deg)
    assert left == pytest.approx(right)
    assert camera.fx == camera.fy


def test_habitatdyns_camera_is_the_default():
    camera = CameraOptions(None, 90).camera(480, 640)
    found = (camera.fx, camera.fy, camera.cx, camera.cy)
    assert found == pytest.approx((320, 320, 319.5, 239.5))


def read_ply(data):
    """Header lines, points [n, 3] and colours [n, 3], read as the PLY format defines them."""
    head, body = data.split(b"end_header\n", 1)
    lines = head.decode("latin-1").splitlines()
    count = int(next(line for line in lines if line.startswith("element vertex")).split()[2])
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"]
    assert [line.split()[1:] for line in lines if line.startswith("property")] == [
        ["float", "x"], ["float", "y"], ["float", "z"],
        ["uchar", "red"], ["uchar", "green"], ["uchar", "blue"],
    ]  # fmt: skip
    records = np.frombuffer(body, np.uint8).reshape(count, 15)
    return lines, records[:, :12].copy().view("<f4"), records[:, 12:]


def test_a_cloud_holds_the_valid_pixels_and_no_others():
    depth_m = np.array([[2.0, 0.0], [0.0, 4.0]])
    rgb = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    data = ply(depth_m, rgb, Intrinsics(1, 2, 0.5, 0.5), {"made-by": "a test"})
    lines, points, colors = read_ply(data)
    assert "comment made-by a test" in lines
    np.testing.assert_array_equal(points, [[-1, -0.5, 2], [2, 1, 4]])
    np.testing.assert_array_equal(colors, [[0, 1, 2], [9, 10, 11]])


def test_intrinsics_of_pictures_of_another_size_are_refused(infer, make_pair, engine):
    make_pair("0", 40, 60)
    camera = ("--clouds", "--intrinsics", "500", "500", "320", "240")
    done = infer("--rgb", "rgb", "--depth", "zoe", "--out", "out", *camera, code=2)
    assert "principal point outside a picture of 60x40" in done.err


def test_a_field_of_view_that_nothing_states_is_named(infer, make_pair):
    make_pair("0", 40, 60)
    words = ("--rgb", "rgb", "--depth", "zoe", "--out", "out", "--clouds")
    message = "--clouds: the camera is not known, so a field of view of 90 degrees is assumed"
    assert message in infer(*words).err
    for stated in (("--fov", 90), ("--intrinsics", 50, 50, 30, 20)):
        assert "assumed" not in infer(*words, *stated).err


def test_point_clouds_hold_the_refined_depth_and_their_provenance(infer, make_pair, engine):
    make_pair("0", 40, 60)
    camera = ("--clouds", "--intrinsics", "50", "60", "30", "20")
    infer("--rgb", "rgb", "--depth", "zoe", "--out", "out", *camera)
    lines, points, colors = read_ply(Path("out/clouds/0.ply").read_bytes())
    depth_m = read_zoe(Path("out/depth/0.png")) / 256
    v, u = np.nonzero(depth_m)
    z = depth_m[v, u]
    expected = np.stack([(u - 30) / 50 * z, (v - 20) / 60 * z, z], 1)
    np.testing.assert_allclose(points, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(colors, read_rgb(Path("rgb/0.jpg"))[v, u])
    assert f"comment zoerefine-bundle {engine.digest}" in lines
    assert f"comment zoerefine-commit {engine.manifest['commit']}" in lines
