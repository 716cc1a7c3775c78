"""Files of distances measured once: one line for each fault, and what is in doubt."""

import math

import numpy as np
import pytest

from zoerefine.base.errors import UserError
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.points.measured import room_of
from zoerefine.depth.points.measured_file import MeasuredFile, read_measured
from zoerefine.depth.points.refiner_choice import RefinerChoice
from zoerefine.depth.points.room import RoomPictures, calibrate
from zoerefine.depth.points.room_prior import RoomPrior

HEAD = "frame,x,y,metres"
SIZE = 48, 64


def file_of(folder, *lines, head=HEAD):
    path = folder / "room.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def frames(names="abc"):
    """Predicted depth that varies over the picture."""
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    return {name: 1 + 0.05 * x + 0.03 * y + number for number, name in enumerate(names)}


def calibrated(path, depths, intrinsics=None):
    """The calibration of a file, and what is in doubt."""
    found = room_of(read_measured(path), depths, intrinsics)
    return found.calibration, list(found.in_doubt.values())


def corrected_m(room, depth_m):
    return RoomPictures.of(room, *depth_m.shape).corrected_m(depth_m)[0]


def lines_of(depths, points=5, factor=0.8, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for name, depth_m in depths.items():
        for y, x in rng.integers(0, SIZE, (points, 2)):
            found.append(f"{name},{x},{y},{factor * depth_m[y, x]:.3f}")
    return found


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["a,1,2,three"], "line 2: metres must be a number, got 'three'"),
        (["a,1,2"], "line 2: metres must be a number, got ''"),
        (["a,inf,2,1"], "line 2: x must be a number, got 'inf'"),
        (["a,1,2,1", ",1,2,1"], "line 3 names no frame"),
        (["a,1,2,0"], "line 2: metres must be above 0"),
        (["a,1,2,2500"], "at most 1000, got 2500; centimetres and millimetres are not converted"),
        ([], "has no measurements"),
        (["a,1,2,1", "a,3,4,1", "a,1.0,2,1.00"], "line 4 is the same as line 2: remove one"),
        (["a,1,2,1", "a,10,20,2,5"], "line 3 has more values than columns"),
    ],
)
def test_a_fault_is_one_line(tmp_path, lines, words):
    with pytest.raises(UserError) as fault:
        read_measured(file_of(tmp_path, *lines))
    assert words in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(UserError, match="line 1 has no column frame, metres"):
        read_measured(file_of(tmp_path, "1,2", head="x,y"))


def test_a_line_with_its_ends_the_other_way_round_is_the_same(tmp_path):
    lines = ["a,1,2,1,3,4", "a,3,4,1,1,2"]
    with pytest.raises(UserError, match="line 3 is the same as line 2"):
        read_measured(file_of(tmp_path, *lines, head=f"{HEAD},x2,y2"))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("metres", "line 1 has two columns 'metres': remove one"),
        (" along", "line 1 has a column ' along': write 'along'"),
        ("X2", "line 1 has a column 'X2': write 'x2'"),
    ],
)
def test_a_column_that_is_doubled_or_spelt_otherwise_is_refused(tmp_path, columns, words):
    with pytest.raises(UserError, match=words):
        read_measured(file_of(tmp_path, "a,1,2,1,3", head=f"{HEAD},{columns}"))


@pytest.mark.parametrize("second", ["3,", "3,x", "1,2"])
def test_a_half_or_empty_distance_is_refused(tmp_path, second):
    path = file_of(tmp_path, f"a,1,2,1,{second}", head=f"{HEAD},x2,y2")
    with pytest.raises(UserError, match="line 2"):
        read_measured(path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("d,1,2,1", "there is no frame 'd'"),
        ("a,70,2,1", "outside the picture of 64x48"),
        ("a,20,60,1", "outside the picture of 64x48; x and y seem to be swapped"),
        ("a,0,0,1", "no depth is predicted at x 0, y 0"),
    ],
)
def test_a_measurement_that_does_not_fit_its_frame_is_refused(tmp_path, line, words):
    depths = frames()
    depths["a"][0, 0] = 0
    with pytest.raises(UserError, match="line 2.*" + words):
        room_of(read_measured(file_of(tmp_path, line)), depths)


def test_measurements_correct_a_frame_that_was_not_measured(tmp_path):
    depths = frames("abcd")
    lines = lines_of({name: depths[name] for name in "abc"})
    room, in_doubt = calibrated(file_of(tmp_path, *lines), depths)
    assert not in_doubt
    ratio = corrected_m(room, depths["d"]) / (0.8 * depths["d"])
    assert abs(np.log(ratio)).mean() < 0.1


@pytest.mark.parametrize(
    ("factor", "unit"), [(100, "centimetres"), (1000, "millimetres")], ids=["cm", "mm"]
)
def test_another_unit_is_named(tmp_path, factor, unit):
    depths = {name: depth_m / 10 for name, depth_m in frames().items()}
    lines = lines_of(depths, factor=factor)
    with pytest.raises(UserError, match=f"it seems to be in {unit}; write metres"):
        calibrated(file_of(tmp_path, *lines), depths)


def test_a_factor_like_that_of_feet_is_asked_about_once(tmp_path):
    depths = frames()
    path = file_of(tmp_path, *lines_of(depths, factor=0.8 / 0.3048))
    [question, *_] = calibrated(path, depths)[1]
    assert question.startswith(f"{path}: 15 of 15 measurements are about 3.")
    assert question.endswith(" times what is predicted: if they are in feet, write metres")
    assert not calibrated(file_of(tmp_path, *lines_of(depths, factor=1.3)), depths)[1]


def test_depth_in_millimetres_is_asked_about_and_ordinary_depth_is_not(tmp_path):
    depths = frames()
    path = file_of(tmp_path, *lines_of(depths))
    read_as_256 = {name: depth_m * 1000 / 256 for name, depth_m in depths.items()}
    [question, *_] = calibrated(path, read_as_256)[1]
    assert question.startswith(f"{path}: depth is predicted 3.9 times")
    assert question.endswith("if it is in millimetres, give metres * 256")
    cm = file_of(tmp_path, *lines_of(depths, factor=62))
    question = room_of(read_measured(cm), read_as_256).in_doubt[0]
    assert question.endswith("if they are in centimetres, write metres"), question
    close = {name: depth_m / 3 for name, depth_m in depths.items()}  # networks do so near things
    assert not calibrated(file_of(tmp_path, *lines_of(close, factor=0.35)), close)[1]
    far = {name: 10 * depth_m for name, depth_m in depths.items()}  # outdoors
    assert not calibrated(file_of(tmp_path, *lines_of(far)), far)[1]


@pytest.mark.parametrize(("factor", "unit"), [(1 / 0.3048, "feet"), (100, "centimetres")])
def test_half_of_the_measurements_in_another_unit_are_asked_about(tmp_path, factor, unit):
    depths = frames()
    lines, other = lines_of(depths), lines_of(depths, factor=0.8 * factor)
    path = file_of(tmp_path, *lines[::2], *other[1::2])
    [question, *_] = calibrated(path, depths)[1]
    assert question.startswith(f"{path}: 7 of 15 measurements are about ")
    assert question.endswith(f"if they are in {unit}, write metres")


@pytest.mark.parametrize(("factor", "unit"), [(1, ""), (1 / 0.3048, "feet"), (100, "centimetres")])
def test_distances_between_two_pixels_in_another_unit_are_named(tmp_path, factor, unit):
    depths, camera = frames(), Intrinsics(50, 50, 32, 24)
    lines = []
    for name, depth_m in depths.items():
        ends = [np.array([(x - 32) / 50, 0, 1]) * 0.8 * depth_m[24, x] for x in (12, 52)]
        lines.append(f"{name},12,24,{factor * np.linalg.norm(ends[0] - ends[1])},52,24")
    path = file_of(tmp_path, *lines, head=f"{HEAD},x2,y2")
    if unit == "centimetres":
        with pytest.raises(UserError, match="it seems to be in centimetres; write metres"):
            calibrated(path, depths, camera)
        return
    said = "\n".join(calibrated(path, depths, camera)[1])
    assert ("3 of 3 measurements" in said and said.endswith(f"in {unit}, write metres")) == bool(
        unit
    )


def test_a_distance_across_an_edge_that_is_not_predicted_is_not_refused(tmp_path):
    depths = {"a": np.full(SIZE, 2.0)}
    path = file_of(tmp_path, "a,30,24,1,31,24", head=f"{HEAD},x2,y2")  # 0.04 m as predicted
    calibrated(path, depths, Intrinsics(50, 50, 32, 24))


def test_one_measurement_in_another_unit_or_on_glass_is_named_and_survived(tmp_path):
    depths = frames()
    lines = lines_of(depths)
    clean, _ = calibrated(file_of(tmp_path, *lines), depths)
    name, x, y, metres = lines[6].split(",")
    lines[6] = f"{name},{x},{y},{100 * float(metres)}"
    room, in_doubt = calibrated(file_of(tmp_path, *lines), depths)
    assert len(in_doubt) == 1
    assert "line 8" in in_doubt[0] and "is it in centimetres?" in in_doubt[0]
    apart = np.log(corrected_m(room, depths["b"]) / corrected_m(clean, depths["b"]))
    assert abs(apart).mean() < 0.1
    lines[6] = f"{name},{x},{y},{0.1 * float(metres)}"
    _, in_doubt = calibrated(file_of(tmp_path, *lines), depths)
    assert ["line 8" in one and "behind glass" in one for one in in_doubt] == [True]


def test_swapped_pixels_are_named(tmp_path):
    depths = {name: np.full(SIZE, 4.0) for name in "abc"}
    for depth_m in depths.values():
        depth_m[5, 40] = 1.0
    lines = [*lines_of(depths), "a,5,40,0.8"]  # was measured at x 40, y 5
    _, in_doubt = calibrated(file_of(tmp_path, *lines), depths)
    assert ["are x and y swapped" in one for one in in_doubt] == [True]


def test_a_distance_between_two_pixels_needs_intrinsics(tmp_path):
    depths = {"a": np.full(SIZE, 2.0)}
    path = file_of(tmp_path, "a,12,24,1.6,52,24", head=f"{HEAD},x2,y2")
    with pytest.raises(UserError, match="needs the camera's intrinsics"):
        room_of(read_measured(path), depths)
    room, _ = calibrated(path, depths, Intrinsics(50, 50, 32, 24))
    # 40 pixels at a focal length of 50 are 1.6 m where the depth is 2 m, as predicted.
    unmeasured = corrected_m(calibrate(RoomPrior.shipped(), []), depths["a"])
    both = unmeasured, corrected_m(room, depths["a"])
    before, after = (abs(math.log(one[24, 32] / 2)) for one in both)
    assert after < before


def test_a_distance_along_the_ray_is_converted_to_depth(tmp_path):
    depths, intrinsics = frames(), Intrinsics(40, 50, 31.5, 23.5)
    along_axis = lines_of(depths)
    along_ray = []
    for line in along_axis:
        name, x, y, metres = line.split(",")
        ray = (float(x) - 31.5) / 40, (float(y) - 23.5) / 50, 1
        along_ray.append(f"{name},{x},{y},{float(metres) * math.hypot(*ray)},ray")
    path = file_of(tmp_path, *along_ray, head=f"{HEAD},along")
    with pytest.raises(UserError, match="line 2: a distance along the ray needs the camera's intr"):
        calibrated(path, depths)
    room, in_doubt = calibrated(path, depths, intrinsics)
    expected, _ = calibrated(file_of(tmp_path, *along_axis), depths)
    np.testing.assert_allclose(room.mean, expected.mean, atol=1e-9)
    assert not in_doubt


@pytest.mark.parametrize("line", ["a,1,2,1,tape,,", "a,1,2,1,ray,3,4"])
def test_another_direction_is_refused(tmp_path, line):
    path = file_of(tmp_path, line, head=f"{HEAD},along,x2,y2")
    with pytest.raises(UserError, match="line 2: along must be axis or ray, and empty for a dist"):
        read_measured(path)


def test_a_changed_file_keeps_what_it_does_not_know(tmp_path):
    path = file_of(tmp_path, "a,1,2,1.5,door", "a,3,4,2,wall", head=f"{HEAD},note")
    file = MeasuredFile.read(path)
    new = {"frame": "a", "x": "3", "y": "4", "metres": "2.5", "along": "ray"}
    file.added(new).without(0).save()
    assert path.read_text() == "frame,x,y,metres,note,along\na,3,4,2.5,,ray\n"
    with pytest.raises(UserError, match="frame a: metres must be a number, got 'two'"):
        file.added(new | {"metres": "two"})
    assert MeasuredFile.read(tmp_path / "none.csv").lines == []


def choice_of(tmp_path, seed, error=0.0, wrong=0, points=5, names="abc"):
    """Whether a refiner is used whose depth is off by this share of the true one at each pixel.

    That of the pseudo depth is 40%. Both have the same scale.
    """
    rng = np.random.default_rng(seed)
    truth = frames(names)
    lines = lines_of(truth, points, 1.0, seed)
    for number in range(wrong):
        lines[7 * number] = lines[7 * number].rpartition(",")[0] + ",9"
    given = read_measured(file_of(tmp_path, *dict.fromkeys(lines)))  # a pixel may come twice
    sides = [
        {name: true_m / 1.4 * rng.lognormal(0, off, SIZE) for name, true_m in truth.items()}
        for off in (0.4, error)
    ]
    return RefinerChoice.of(*(room_of(given, one) for one in sides))


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_refiner_is_used_that_predicts_what_was_measured_clearly_better(tmp_path, wrong):
    choices = [choice_of(tmp_path, seed, 0.05, wrong, points=12) for seed in range(10)]
    assert sum(one.used for one in choices) >= 8
    assert all(one.error < one.without for one in choices if one.used)


@pytest.mark.parametrize("wrong", [0, 2])
def test_a_refiner_is_left_away_that_is_worse_or_no_better(tmp_path, wrong):
    for error in (0.4, 0.6):
        choices = [choice_of(tmp_path, seed, error, wrong) for seed in range(20)]
        assert sum(one.used for one in choices) <= 2  # by chance


def test_with_few_measurements_a_refiner_is_left_away(tmp_path):
    nothing = room_of([], frames())
    assert not RefinerChoice.of(nothing, nothing).used
    assert not choice_of(tmp_path, 0, points=1).used
    for seed in range(5):  # they may be many, but of one frame
        assert not choice_of(tmp_path, seed, points=30, names="a").used


def test_a_camera_of_another_size_is_refused(tmp_path):
    path = file_of(tmp_path, "a,3,4,2,ray", head=f"{HEAD},along")
    with pytest.raises(UserError, match="principal point outside a picture of 64x48"):
        calibrated(path, frames(), Intrinsics(400, 400, 320, 240))
