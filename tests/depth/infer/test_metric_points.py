"""infer --points: metric points correct a refiner's output, or the pseudo depth alone."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import read_rgb
from zoerefine.cli import main
from zoerefine.depth.data.cache.decode import read_truth_m, read_zoe
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.infer import Refiner, inference, stream
from zoerefine.depth.points import MetricPoints, PointFiles, for_engines
from zoerefine.depth.points.measured_file import read_measured
from zoerefine.depth.points.spread import spread_points

SOURCES = ("--rgb", "rgb", "--depth", "zoe")
NAMES = 16


@pytest.fixture
def points(world, clips):
    """Points of the clips: one folder, made by the command."""
    assert main(["data", "points", str(world), "--out", str(clips / "given"), "--noise", "0"]) == 0
    shutil.copytree(world / habitatdyn.DEPTH, clips / "truth")
    return PointFiles(clips / "given")


def by_points(folder, points, correct):
    """What points make of every depth file of a folder: path -> metres * 256."""
    found = {}
    for path in sorted(Path(folder).rglob("*.png")):
        zoe, name = read_zoe(path), str(path.relative_to(folder).with_suffix(""))
        found[name] = correct(zoe, points.read(name, *zoe.shape))
    return found


def assert_depth(folder, expected):
    for name, depth in expected.items():
        np.testing.assert_array_equal(read_zoe(Path(folder) / f"{name}.png"), depth)


def test_points_correct_the_output_of_a_refiner(infer, points):
    infer(*SOURCES, "--out", "plain")
    infer(*SOURCES, "--out", "out", "--points", "given")
    expected = by_points("plain/depth", points, for_engines.corrected)
    assert len(expected) == NAMES
    assert_depth("out/depth", expected)


def test_points_alone_correct_the_pseudo_depth_without_a_refiner(alone, points):
    drawings = ("--picture", "a.png", "--video", "a.mp4", "--colors")
    words = (*SOURCES, "--out", "out", "--points", "given", "--eval", "truth", *drawings)
    done = alone(*words)
    assert Path("a.png").exists() and Path("a.mp4").exists()
    assert_depth("out/depth", by_points("zoe", points, for_engines.points_alone_u16))
    report = json.loads(Path("out/metrics.json").read_text())
    assert report["points"] == report["refined"]
    assert report["refined"]["abs_rel"] < 0.5 * report["pseudo"]["abs_rel"]
    assert "none: metric points alone" in Path("out/outputs.json").read_text()
    header = next(line for line in done.out.splitlines() if "pseudo" in line)
    assert header.split() == ["pseudo", "points", "ratio"]


def test_frames_are_corrected_again_when_their_points_change(alone, points):
    words = (*SOURCES, "--out", "out", "--points", "given")
    alone(*words)
    changed = sorted(Path("given").rglob("*.csv"))[0]
    changed.write_text("x,y,metres\n10,10,2.5\n")
    assert "1 frames refined, 15 kept" in alone(*words)[1]
    changed.unlink()
    done = alone(*words)
    assert "1 frames refined, 15 kept" in done.out
    assert "1 of 16 frames have no points" in done.out
    name = changed.relative_to("given").with_suffix(".png")
    np.testing.assert_array_equal(read_zoe("out/depth" / name), read_zoe("zoe" / name))


def test_a_frame_with_damaged_points_is_named_and_left_out(alone, points):
    damaged = sorted(Path("given").rglob("*.csv"))[3]
    damaged.write_text("x,y,metres\n10,10,2.5\n10,10,near\n")
    done = alone(*SOURCES, "--out", "out", "--points", "given", code=1)
    assert f"{damaged} line 3: metres must be a number, got 'near'" in done.out + done.err
    assert "15 frames refined" in done.out


def scale_points(files, factor):
    """Write CSV files of points in another unit."""
    for path in files:
        head, *rows = path.read_text().splitlines()
        cells = [row.split(",") for row in rows]
        scaled = [f"{x},{y},{min(1000, factor * float(metres))}," for x, y, metres, _ in cells]
        path.write_text("\n".join([head, *scaled]) + "\n")


def test_places_that_are_shares_of_the_picture_are_refused(alone, points, bundle):
    path = sorted(Path("given").rglob("*.csv"))[0]
    path.write_text("x,y,metres\n0,0.5,2\n1,1,2\n0.25,0.125,3\n")
    rgb, zoe, given = (f"{folder}/{path.parent.name}" for folder in ("rgb", "zoe", "given"))
    done = alone("--rgb", rgb, "--depth", zoe, "--out", "out", "--points", given, code=1)
    line = "every x and y is at most 1, and they are pixels: multiply shares by"
    assert f"{path}: {line}" in done.out + done.err
    shares = MetricPoints([0.1, 0.5, 0.9], [0.2, 0.5, 0.7], [2.0, 2, 2], [0.1, 0.1, 0.1])
    corner = MetricPoints([0.0, 1, 1], [0.0, 0, 1], [2.0, 2, 2], [0.1, 0.1, 0.1])
    rgb_u8, zoe_m = np.zeros((48, 64, 3), np.uint8), np.full((48, 64), 2.0, np.float32)
    refiner = Refiner.load(bundle)
    far, nan = [0.1, 0.2, 0.9, 1.02], math.nan  # a landmark beside the picture; one without depth
    odd = MetricPoints([*far, nan], [*far, nan], [2.0, 2, 2, 2, nan], [nan] * 5)
    middle = MetricPoints([-0.9, -0.2, 0.1, 0.8], [-0.1, 0.1, 0.7, 0.9], [2.0] * 4, [nan] * 4)
    for wrong in (shares, odd, middle):
        with pytest.raises(UserError, match=line):
            refiner(rgb_u8, zoe_m, wrong)
        with pytest.raises(UserError, match=line):
            spread_points(zoe_m, wrong)
    refiner(rgb_u8, zoe_m, corner)
    Path("room.csv").write_text("frame,x,y,metres\na,0.1,0.5,2\nb,0.5,0.5,2\nc,0.9,0.1,2\n")
    with pytest.raises(UserError, match=f"room.csv: {line}"):
        read_measured(Path("room.csv"))


@pytest.mark.parametrize(
    ("factor", "unit", "by_network"),
    [(100, "centimetres", False), (1000, "millimetres", False), (100, "metres", True)],
    ids=["cm", "mm", "of a network"],
)
def test_points_in_another_unit_are_named(alone, points, request, factor, unit, by_network):
    path = sorted(Path("given").rglob("*.csv"))[2]
    scale_points([path], factor)
    rgb, zoe, given = (f"{folder}/{path.parent.name}" for folder in ("rgb", "zoe", "given"))
    depth = ("--depth", zoe)
    if by_network:
        depth = ("--depth-model", request.getfixturevalue("small_zoedepth"))
    done = alone("--rgb", rgb, *depth, "--out", "out", "--points", given, code=1)
    assert "3 frames refined, 0 kept, 1 left out" in done.out
    assert f"{path}: what was measured is" in done.out + done.err
    assert f"{unit}; write metres" in done.out + done.err


@pytest.mark.parametrize("by_network", [False, True])
def test_points_in_feet_are_asked_about_once_for_their_folder(alone, points, request, by_network):
    words = ("--rgb", "rgb", "--out", "out", "--points", "given", "-q", "--depth", "zoe")
    if by_network:
        words = (*words[:-2], "--depth-model", request.getfixturevalue("small_zoedepth"))
        alone(*words)
        for path in Path("given").rglob("*.csv"):  # as that network says
            name = path.relative_to("given").with_suffix(".png")
            depth_m = read_zoe("out/zoe_depth_raw" / name) / 256
            rows = [f"{x},5,{depth_m[5, x]}," for x in (3, 9, 15)]
            path.write_text("\n".join(["x,y,metres,sigma", *rows]) + "\n")
    scale_points(Path("given").rglob("*.csv"), 1 / 0.3048)
    done = alone(*words)
    [line] = [line for line in done.err.splitlines() if "feet" in line]
    assert line.startswith("warning: given: 1") and " of 16 frames are about " in line
    assert line.endswith(" times what is predicted: if they are in feet, write metres")


def test_sigma_in_millimetres_is_asked_about(alone, points):
    for sigma, lines in (("0.02", 0), ("20", 1)):
        for path in Path("given").rglob("*.csv"):
            rows = [row.rpartition(",")[0] for row in path.read_text().splitlines()[1:]]
            path.write_text("\n".join(["x,y,metres,sigma", *(f"{one},{sigma}" for one in rows)]))
        done = alone(*SOURCES, "--out", f"out{sigma}", "--points", "given", "-q")
        assert len(done.err.splitlines()) == lines, done.err
    assert done.err.startswith("warning: given: sigma is ")
    assert "hardly count: if it is in millimetres, write metres" in done.err


@pytest.mark.parametrize("factor", [0.4, 1.6])
def test_a_network_that_is_far_off_is_not_asked_about(alone, points, factor):
    scale_points(Path("given").rglob("*.csv"), factor)
    done = alone(*SOURCES, "--out", "out", "--points", "given", "-q")
    assert done.err == ""


@pytest.mark.parametrize(("factor", "unit"), [(100, "centimetres"), (1000, "millimetres")])
def test_a_folder_of_points_in_another_unit_is_refused(alone, points, factor, unit):
    scale_points(Path("given").rglob("*.csv"), factor)
    done = alone(*SOURCES, "--out", "out", "--points", "given", code=2)
    assert not Path("out/depth").exists()
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("error: given: what was measured is ")
    assert done.err.strip().endswith(f" it seems to be in {unit}; write metres")


def test_pseudo_depth_in_millimetres_is_asked_about_by_its_points(alone, points):
    for path in Path("zoe").rglob("*.png"):
        millimetres = np.rint(read_zoe(path) / 256 * 1000).clip(0, 65535).astype(np.uint16)
        assert cv2.imwrite(str(path), millimetres)
    done = alone(*SOURCES, "--out", "out", "--points", "given", "-q")
    [line] = done.err.splitlines()
    assert line.startswith("warning: given: depth is predicted ")
    assert line.endswith("if it is in millimetres, give metres * 256")


def test_zones_in_metres_times_256_are_asked_about(alone, world, clips):
    """As all other depth files are."""
    zones = clips / "zones"
    assert main(["data", "points", str(world), "--out", str(zones), "--kind", "zones"]) == 0
    sizes = {}
    for path in zones.rglob("*.csv"):
        x, y, metres = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 1, 2)).T
        cells = np.zeros((8, 8), np.uint16)
        cells[(y * 8 / 48).astype(int), (x * 8 / 64).astype(int)] = np.rint(metres * 256)
        assert cv2.imwrite(str(path.with_suffix(".png")), cells)
        path.unlink()
        sizes[path] = (cells > 0).sum()
    assert min(sizes.values()) > 30
    done = alone(*SOURCES, "--out", "out", "--points", "zones", "-q")
    [line] = done.err.splitlines()
    assert line.startswith("warning: zones: 1") and " of 16 frames are about 0.2" in line
    assert line.endswith("predicted: if zones are in metres * 256, write millimetres")


def test_points_of_calls_that_are_too_near_are_asked_about_once(bundle, capsys):
    refiner = Refiner.load(bundle)
    rgb, zoe_m = np.zeros((24, 32, 3), np.uint8), np.full((24, 32), 2.0, np.float32)
    for factor, said in ((0.22, 1), (0.4, 0)):
        refiner.points = type(refiner.points)()
        points = MetricPoints([4, 9, 20], [5, 6, 7], np.array([2, 2.2, 1.9]) * factor, [0.1] * 3)
        for _ in range(20):
            refiner(rgb, zoe_m, points)
        lines = capsys.readouterr().err.splitlines()
        assert [line.endswith("write millimetres") for line in lines] == [True] * said


def test_depth_of_a_call_that_is_a_thousand_times_too_far_is_refused():
    zoe = np.full((24, 32), 2000, np.float32)
    points = MetricPoints([4, 9, 20], [5, 6, 7], [2, 2.2, 1.9], [0.1] * 3)
    with pytest.raises(UserError, match="predicted 1000 times as far as measured: it is in ano"):
        spread_points(zoe, points)


def test_points_of_calls_in_another_unit_are_refused_or_asked_about_once(bundle, capsys):
    refiner = Refiner.load(bundle)
    rgb, zoe_m = np.zeros((24, 32, 3), np.uint8), np.full((24, 32), 2.0, np.float32)
    feet, centimetres, millimetres = (
        MetricPoints([4, 9, 20], [5, 6, 7], [factor * one for one in (2, 2.2, 1.9)], [0.1] * 3)
        for factor in (1 / 0.3048, 100, 1000)
    )
    for points, unit in ((centimetres, "centimetres"), (millimetres, "millimetres")):
        with pytest.raises(UserError, match=f"^metric points: .* it seems to be in {unit}; write"):
            refiner(rgb, zoe_m, points)
    for _ in range(40):
        refiner(rgb, zoe_m, feet)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: metric points: 16 of 16 pictures are about 3.28 times what is")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "give a bundle or a run, or --points"),
        (["--points", "nowhere"], "there is no folder nowhere with points"),
        (["--points", "empty"], "the first would be empty/"),
        (["--points", "out/depth"], "holds results of --out out"),
        (["--points", "zoe/"], "--points and --depth are both zoe"),
        (["--points", "truth", "--eval", "truth"], "--points and --eval are both truth"),
    ],
)
def test_wrong_options_are_one_line(alone, points, words, line):
    for folder in ("empty", "out/depth"):
        Path(folder).mkdir(parents=True)
    if words[1:] == ["out/depth"]:
        shutil.copytree("given", "out/depth", dirs_exist_ok=True)
    done = alone(*SOURCES, "--out", "out", *words, code=2)
    assert line in done.err and len(done.err.strip().splitlines()) == 1


def inside(depth, spread, truth_m):
    """The share of valid pixels whose true depth is in the band."""
    valid = (depth > 0) & (truth_m > 0)
    apart = np.abs(np.log(truth_m[valid] / (depth[valid] / 256)))
    return np.mean(apart <= spread[valid] / 10_000)


def test_confidence_of_points_is_by_the_points(alone, points, bundle):
    words = (*SOURCES, "--points", "given", "--confidence", "--picture", "a.png")
    alone(*words, "--out", "out")
    shares = []
    for path in sorted(Path("out/confidence").rglob("*.png")):
        name = path.relative_to("out/confidence")
        zoe, spread = read_zoe(Path("zoe") / name), read_zoe(path)
        found = points.read(str(name.with_suffix("")), *zoe.shape)
        np.testing.assert_array_equal(spread, for_engines.spread_u16(zoe, found))
        truth_m = read_truth_m(Path("truth") / name, None)
        shares.append(inside(read_zoe(Path("out/depth") / name), spread, truth_m))
        assert np.median(spread[spread > 0]) < for_engines.WITHOUT_POINTS * 10_000 / 2
    assert len(shares) == NAMES and 0.85 < np.mean(shares) < 0.99
    # A refiner that takes no points: they correct its output.
    alone(str(bundle), *words, "--out", "refined")
    refiner, name = Refiner.load(bundle), sorted(Path("zoe").rglob("*.png"))[0].relative_to("zoe")
    rgb, zoe = read_rgb(Path("rgb") / name.with_suffix(".jpg")), read_zoe(Path("zoe") / name)
    found = points.read(str(name.with_suffix("")), *zoe.shape)
    assert_depth("refined/depth", {name.with_suffix(""): refiner(rgb, zoe, found)})
    depth, spread = refiner.with_confidence(rgb, zoe, found)
    assert_depth("refined/depth", {name.with_suffix(""): depth})
    assert_depth("refined/confidence", {name.with_suffix(""): spread})
    tensors = refiner.with_confidence(torch.from_numpy(rgb), torch.from_numpy(zoe / 256), found)
    np.testing.assert_allclose(tensors[0], depth / 256, atol=1e-6)
    np.testing.assert_allclose(tensors[1], spread / 10_000, atol=1e-6)


def test_a_frame_without_points_keeps_the_confidence_that_there_is(alone, points, infer):
    infer(*SOURCES, "--out", "plain", "--confidence")
    for path in sorted(Path("given").rglob("*.csv"))[1:]:
        path.unlink()
    words = (*SOURCES, "--points", "given", "--confidence")
    infer(*words, "--out", "refined")
    assert alone(*words, "--out", "alone")[0] == 0
    names = [path.relative_to("zoe") for path in sorted(Path("zoe").rglob("*.png"))]
    first = [read_zoe(f"{out}/confidence" / names[0]) for out in ("refined", "plain")]
    assert (first[0] != first[1]).any()
    for name in names[1:]:
        own, found = (read_zoe(f"{out}/confidence" / name) for out in ("plain", "refined"))
        np.testing.assert_array_equal(found, own)
        spread = read_zoe("alone/confidence" / name)
        assert set(np.unique(spread)) <= {0, round(for_engines.WITHOUT_POINTS * 10_000)}


def test_points_give_confidence_to_a_bundle_that_has_none(alone, points, engine):
    """As an engine whose refiner was trained without it."""

    def without_confidence(rgb_u8, zoe_u16):
        return engine.on_arrays(rgb_u8, zoe_u16)[:1]

    plain = replace(
        engine, on_arrays=without_confidence, manifest=engine.manifest | {"outputs": ["depth"]}
    )
    refiner, both = Refiner(plain), Refiner(engine)
    name = sorted(Path("zoe").rglob("*.png"))[0].relative_to("zoe")
    rgb, zoe = read_rgb(Path("rgb") / name.with_suffix(".jpg")), read_zoe(Path("zoe") / name)
    found = points.read(str(name.with_suffix("")), *zoe.shape)
    assert not refiner.has_confidence
    for one, other in zip(
        refiner.with_confidence(rgb, zoe, found), both.with_confidence(rgb, zoe, found), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(UserError, match="no confidence"):
        refiner.with_confidence(rgb, zoe)


def test_points_and_a_measured_room_have_confidence_together(alone, points):
    zoe = read_zoe(sorted(Path("zoe").rglob("*.png"))[0])
    y, x = np.argwhere(zoe)[len(np.argwhere(zoe)) // 2]
    name = sorted(Path("zoe").rglob("*.png"))[0].relative_to("zoe").with_suffix("")
    Path("room.csv").write_text(f"frame,x,y,metres\n{name},{x},{y},{2 * zoe[y, x] / 256}\n")
    last = sorted(Path("given").rglob("*.csv"))[-1]
    last.unlink()
    room = ("--measured", "room.csv", "--confidence")
    assert alone(*SOURCES, *room, "--out", "room")[0] == 0
    assert alone(*SOURCES, *room, "--points", "given", "--out", "both")[0] == 0
    for path in sorted(Path("room/depth").rglob("*.png")):
        name = path.relative_to("room/depth")
        depth, spread = read_zoe(path), read_zoe("room/confidence" / name)
        found = points.read(str(name.with_suffix("")), *depth.shape)
        expected = for_engines.spread_u16(depth, found, spread)
        np.testing.assert_array_equal(read_zoe("both/confidence" / name), expected)
    assert not len(found)  # the last one's


def test_the_picture_names_and_draws_the_points(alone, points):
    """Text of an SVG is text, and a marker is an element."""
    last = sorted(Path("given").rglob("*.csv"))[NAMES // 2]  # the middle frame
    lines = last.read_text().splitlines()[:4]
    last.write_text("\n".join(lines) + "\n")
    words = (*SOURCES, "--points", "given", "--out", "out")
    assert alone(*words, "--picture", "with.svg")[0] == 0
    assert "RGB, 3 metric points" in Path("with.svg").read_text()
    assert Path("with.svg").read_text().count("PathCollection") == 1
    last.unlink()
    assert alone(*words, "--picture", "without.svg")[0] == 0
    assert "metric point" not in Path("without.svg").read_text().replace("metric points, ", "")


def test_metrics_of_a_stream_say_which_depth_is_not_steady(infer, alone, points):
    words = (*SOURCES, "--points", "given", "--eval", "truth", "--out")
    assert "as single frames" not in infer(*words, "plain").out
    others = "pseudo and points: as single frames, without --stream"
    done = alone(*words, "alone", "--stream")
    assert others in done.out.splitlines()
    done = infer(*words, "out", "--stream")
    assert f"{others}; what the refiner adds shows without --stream" in done.out.splitlines()
    plain, steady = (json.loads(Path(one, "metrics.json").read_text()) for one in ("plain", "out"))
    assert steady.pop("stream") is True and steady["points"] == plain["points"]
    assert steady.keys() == plain.keys()


@pytest.mark.parametrize("words", [("--points", "given"), ("--stream", "--points", "given")])
def test_results_of_a_version_with_other_depth_by_points_are_made_again(
    alone, points, monkeypatch, words
):
    command = (*SOURCES, "--out", "out", *words)
    assert f"{NAMES} frames refined, 0 kept" in alone(*command).out
    assert f"0 frames refined, {NAMES} kept" in alone(*command).out
    monkeypatch.setattr(inference, "VERSION", "points 0")
    assert f"{NAMES} frames refined, 0 kept" in alone(*command).out


@pytest.mark.numeric
def test_depth_by_points_and_of_a_stream_is_that_of_their_version():
    """Where this fails, raise the VERSION of what changed, and write the new numbers here."""
    y, x = np.indices((48, 64))
    zoe = (512 + 8 * x + 4 * y).astype(np.uint16)
    at = np.array([[5.0, 20, 50], [5, 40, 10], [1, 3, 4.5]])
    found = for_engines.corrected(zoe, MetricPoints(*at, np.array([0, 0.02, 0.1])))
    means = {for_engines.VERSION: found.mean()}
    rgb = np.repeat((x * 4)[..., None], 3, 2).astype(np.uint8)
    memory = None
    for number in range(3):
        found, memory = stream.step(memory, rgb, (zoe * (1 + 0.05 * number)).astype(np.uint16))
    means[stream.VERSION] = found.mean()
    assert means == pytest.approx({"points 1": 908.51, "stream 1": 867.62}, rel=2e-4)
