"""Files of points: tables and low-resolution depth, and one line for each fault."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import write_png
from zoerefine.depth.data.metric_points import MetricPoints, PointFiles, read_points
from zoerefine.depth.points.simulate import csv_text


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-0.49, 63), st.floats(-0.49, 47), st.floats(0.01, 900), st.floats(0, 9)
        ),
        max_size=20,
    )
)
def test_a_written_table_is_read_again(tmp_path_factory, rows):
    rows = [*rows, (60, 40, 1, 0)]  # else all might be taken for shares of the picture
    points = MetricPoints(*np.array(rows, float).T)
    path = tmp_path_factory.mktemp("points") / "0.csv"
    path.write_text(csv_text(points))
    found = read_points(path, 48, 64)
    for name in ("x", "y", "depth_m", "sigma_m"):
        np.testing.assert_allclose(getattr(found, name), getattr(points, name), rtol=1e-5)


def test_sigma_and_further_columns_are_optional(tmp_path):
    (tmp_path / "0.csv").write_text("\ufeffid,metres,x,y\n7,1.5,3,4\n")
    found = PointFiles(tmp_path).read("0", 48, 64)
    assert (found.x, found.y, found.depth_m) == (3, 4, 1.5)
    assert np.isnan(found.sigma_m)  # not known


def test_a_low_resolution_picture_has_points_at_the_centres_of_its_zones(tmp_path):
    values = np.zeros((8, 8), np.uint16)
    values[1, 2] = 1234
    write_png(tmp_path / "0.png", values)
    found = PointFiles(tmp_path).read("0", 48, 64)
    # Zones of 8 columns and 6 rows: columns 16 to 23 and rows 6 to 11.
    assert (found.x, found.y, found.depth_m) == (19.5, 8.5, 1.234)


def test_a_picture_without_a_file_has_no_points(tmp_path):
    assert len(PointFiles(tmp_path).read("0", 48, 64)) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,y\n1,2\n", "line 1 has no column metres"),
        ("", "line 1 has no column x, y, metres"),
        ("x,y,metres\n1,2,three\n", "line 2: metres must be a number, got 'three'"),
        ("x,y,metres\n1,2\n", "line 2: metres must be a number, got ''"),
        ("x,y,metres\n1,2,1\n64,2,1\n", "line 3: x 64, y 2 is outside the picture of 64x48"),
        ("x,y,metres\nnan,2,1\n", "line 2: x must be a number, got 'nan'"),
        ("x,y,metres\n1,60,2\n", "outside the picture of 64x48; x and y seem to be swapped"),
        ("x,y,metres\n1,2,0\n", "line 2: metres must be above 0"),
        ("x,y,metres\n1_0,2,1\n", "line 2: x must be a number, got '1_0'"),
        ("x,y,metres\n1,2,nan\n", "line 2: metres must be a number, got 'nan'"),
        ("x,y,metres\n1,2,inf\n", "line 2: metres must be a number, got 'inf'"),
        ("x,y,metres\n1,2,1\n10,5,20,5,2,31\n", "line 3 has more values than columns"),
        ("x,y,metres,x\n1,2,1,3\n", "line 1 has two columns 'x'"),
        ("x,sigma,y,metres,sigma\n1,2,1,3\n", "line 1 has two columns 'sigma'"),
        ("x,y,metres, sigma\n1,2,1,3\n", "line 1 has a column ' sigma': write 'sigma'"),
        ("x,y,metres,sigma\n1,2,1,-1\n", "line 2: sigma must be from 0 to 1000 metres"),
        ("x,y,metres,sigma\n1,2,1,1e300\n", "line 2: sigma must be from 0 to 1000 metres"),
        ("x,y,metres," + "a" * 200_000 + "\n1,2,1,1\n", "is no CSV (field larger than"),
    ],
)
def test_a_wrong_table_is_named_with_its_line(tmp_path, text, words):
    path = tmp_path / "0.csv"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_points(path, 48, 64)
    assert str(path) in str(error.value) and words in str(error.value)


def test_a_wrong_picture_is_named(tmp_path):
    write_png(tmp_path / "a.png", np.ones((8, 8), np.uint8))
    with pytest.raises(UserError, match=r"a\.png has 8 bits: points are a PNG of 16 bits"):
        read_points(tmp_path / "a.png", 48, 64)
    write_png(tmp_path / "b.png", np.ones((64, 64), np.uint16))
    with pytest.raises(UserError, match="64x64 zones, the picture 64x48 pixels"):
        read_points(tmp_path / "b.png", 48, 64)


def test_two_files_of_one_picture_are_refused(tmp_path):
    write_png(tmp_path / "0.png", np.ones((8, 8), np.uint16))
    (tmp_path / "0.csv").write_text("x,y,metres\n")
    with pytest.raises(UserError, match="points of one picture: remove one"):
        PointFiles(tmp_path).path("0")


@pytest.mark.parametrize(
    "values", [([1], [1, 2], [1], [0]), (1, 1, 1, 0), ([[1]],) * 4, (["a"],) * 4, ([[1], 2],) * 4]
)
def test_points_of_other_shapes_or_types_are_refused(values):
    with pytest.raises(UserError, match=r"give four sequences of (one length|numbers)"):
        MetricPoints(*values)
