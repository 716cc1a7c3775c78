"""--eval: the metrics are those that NumPy computes from the files by ZoeDepth's protocol."""

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.protocol import plain_metrics
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.exporting.bundle.bundle import read_bundle, write
from zoerefine.depth.exporting.bundle.trust import trust
from zoerefine.depth.infer.evaluate import advice, table

FOLDERS = ("--rgb", "rgb", "--depth", "zoe", "--out", "out")


@pytest.fixture
def truth(world, clips):
    """The world's true depth, 8 bits."""
    shutil.copytree(world / habitatdyn.DEPTH, clips / "truth")
    return clips / "truth"


def expected(truth_of):
    """Means over the pictures of `truth_of`, a folder -> metres: (pseudo, refined)."""
    both = {"pseudo": "zoe", "refined": "out/depth"}
    found = {which: [] for which in both}
    for name, truth_m in truth_of.items():
        zoe = read_zoe(Path("zoe") / name)
        counts = (truth_m > 1e-3) & (truth_m < 10) & (zoe > 0)
        for which, folder in both.items():
            depth_m = read_zoe(Path(folder) / name) / 256
            found[which].append(plain_metrics(depth_m[counts], truth_m[counts]))
    return {
        which: {key: np.mean([row[key] for row in rows]) for key in rows[0]}
        for which, rows in found.items()
    }


def metres_of_8_bits(folder):
    found = {}
    for path in sorted(folder.rglob("*.png")):
        value = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        found[path.relative_to(folder)] = np.where(value == 255, 0, value / 255 * 10)
    return found


def test_metrics_are_those_computed_independently_with_the_ratio(infer, truth):
    done = infer(*FOLDERS, "--eval", "truth")
    wanted = expected(metres_of_8_bits(truth))
    report = json.loads(Path("out/metrics.json").read_text())
    assert report["frames"] == 16
    for which, values in wanted.items():
        assert report[which] == pytest.approx(values, rel=1e-9)
    before, after = wanted["pseudo"]["rmse"], wanted["refined"]["rmse"]
    assert report["ratio"]["rmse"] == pytest.approx(after / before)
    line = next(line for line in done.out.splitlines() if line.startswith("rmse "))
    assert line.split()[1:] == [f"{before:.4f}", f"{after:.4f}", f"{after / before:.3f}"]


def test_the_columns_of_the_table_stay_apart_and_a_ratio_to_nothing_is_left_out():
    report = {
        "pseudo": {"abs_rel": 2.9, "silog": 1234.5, "delta1": 3.5e-5},
        "refined": {"abs_rel": 0.05, "silog": 1000.25, "delta1": 0.9998},
        "ratio": {"abs_rel": 0.0172, "silog": 0.8102, "delta1": 28793.337},
    }
    head, *rows = map(str.split, table(report | {"training_scenes": {}}).splitlines())
    assert head == ["pseudo", "refined", "ratio"]
    assert rows[1] == ["silog", "1234.5000", "1000.2500", "0.810"]
    assert rows[2] == ["delta1", "0.0000", "0.9998", "-"]


def test_true_depth_of_another_size_is_not_compared_and_not_drawn(infer, truth):
    """As in ScanNet, whose sensors differ."""
    for path in truth.rglob("*.png"):
        depth = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        cv2.imwrite(str(path), depth[::2, ::2])
    done = infer(*FOLDERS, "--eval", "truth", "--picture", "side.png", code=1)
    assert done.err.count("differ in size") == 16
    assert Path("side.png").is_file()


@pytest.mark.parametrize("words", [("rgb", "rgb", "truth"), ("rgb", "zoe", "zoe")])
def test_one_folder_for_two_kinds_of_files_is_refused(infer, truth, words):
    rgb, depth, true = words
    given = ("--rgb", rgb, "--depth", depth, "--eval", f"{true}/.", "--out", "out")
    assert "are both" in infer(*given, code=2).err


def test_true_depth_that_is_all_out_of_range_is_named_and_the_exit_code_is_1(infer, truth):
    for path in truth.rglob("*.png"):
        cv2.imwrite(str(path), np.full((480, 640), 60_000, np.uint16))  # not millimetres
    done = infer(*FOLDERS, "--eval", "truth", code=1)
    assert "--eval truth: no frame has a pixel with both pseudo depth and true depth" in done.out
    assert "compared with" not in done.out and len(list(Path("out/depth").rglob("*.png"))) == 16


def test_truth_in_millimetres_is_read_and_frames_without_truth_are_not_counted(infer, truth):
    some = dict(list(metres_of_8_bits(truth).items())[3:9])
    shutil.rmtree(truth)
    for name, truth_m in some.items():
        (truth / name).parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(truth / name), np.rint(truth_m * 1000).astype(np.uint16))
    done = infer(*FOLDERS, "--eval", "truth")
    assert "compared with the true depth of 6 frames" in done.out, done.err
    wanted = expected({name: np.rint(truth_m * 1000) / 1000 for name, truth_m in some.items()})
    report = json.loads(Path("out/metrics.json").read_text())
    # 800 / 256 m over 2000 / 1000 m is exactly 1.25 ** 2: rounding may put a pixel on either side.
    assert report["refined"] == pytest.approx(wanted["refined"], rel=1e-3)


def test_the_truth_is_in_the_unit_that_its_data_set_states(infer, truth):
    names = sorted(path.relative_to(truth) for path in truth.rglob("*.png"))
    lines = ["clip,rgb,depth,pseudo,depth_unit_m"]
    for name in names:
        rgb = Path("rgb", name).with_suffix(".jpg")
        lines.append(f"{name.parent},{rgb},truth/{name},zoe/{name},0.02")
    values = {name: cv2.imread(str(truth / name), cv2.IMREAD_UNCHANGED) for name in names}
    stated_m = {name: np.where(value == 255, 0, value * 0.02) for name, value in values.items()}
    # The names of truth and pictures must agree, so some have folders of links.
    Path("linked").mkdir()
    for clip in truth.iterdir():
        Path("linked", clip.name).symlink_to(clip.resolve())
    for listed, folder in ((lines[:4], "truth"), (lines, "truth"), (lines, "linked")):
        Path("frames.csv").write_text("\n".join(listed))
        done = infer(*FOLDERS, "--eval", folder)
        assert "unit of the true depth: 0.02 m, as its data set states\n" in done.err
        report = json.loads(Path("out/metrics.json").read_text())
        assert report["refined"] == pytest.approx(expected(stated_m)["refined"], rel=1e-9)


@pytest.mark.parametrize(("units", "lines"), [(1000, 0), (5000, 1), (256, 1)])
def test_a_truth_that_seems_to_be_in_another_unit_is_asked_about(infer, truth, units, lines):
    """TUM's unit, and that of pseudo depth; 16 bits are read as millimetres."""
    for name, truth_m in metres_of_8_bits(truth).items():
        assert cv2.imwrite(str(truth / name), np.rint(truth_m * units).astype(np.uint16))
    found = infer(*FOLDERS, "--eval", "truth").err.splitlines()
    asked = [line for line in found if "--eval truth: pseudo depth is " in line]
    assert len(asked) == lines
    for line in asked:
        assert " times the true depth: is one of them in another unit? Every metric" in line


def test_kept_frames_count_like_newly_refined_ones(infer, truth):
    infer(*FOLDERS)
    Path("out/depth/0000/00000.png").unlink()
    first = infer(*FOLDERS, "--eval", "truth")
    assert "1 frames refined, 15 kept" in first.out
    assert "compared with the true depth of 16 frames" in first.out
    assert first.out.splitlines()[1:] == infer(*FOLDERS, "--eval", "truth").out.splitlines()[1:]


def test_a_damaged_truth_is_named_and_not_compared(infer, truth):
    (truth / "0054" / "00001.png").write_bytes(b"no picture")
    cv2.imwrite(str(truth / "0108" / "00000.png"), np.full((10, 10), 100, np.uint8))
    done = infer(*FOLDERS, "--eval", "truth", "-q", code=1)
    assert "compared with the true depth of 14 frames" in done.out
    assert "0054/00001 is not compared" in done.err
    assert "0108/00000 is not compared" in done.err


def test_where_no_truth_can_be_read_nothing_else_is_guessed(infer, truth):
    for path in truth.rglob("*.png"):
        path.write_bytes(b"no picture")
    done = infer(*FOLDERS, "--eval", "truth", "-q", code=1)
    assert "so there are no metrics; 16 could not be compared: see above\n" in done.out


def training_scenes(done):
    """What metrics.json says of them, and the line of the terminal."""
    assert done.code == 0, done.err
    [line] = [line for line in done.out.splitlines() if "training" in line]
    return json.loads(Path("out/metrics.json").read_text())["training_scenes"], line


def test_frames_of_training_scenes_are_counted_wherever_the_data_were_copied(
    infer, world, tmp_path
):
    """The bundle was trained and validated on three of four scenes, of four frames each."""
    data = tmp_path / "copied"
    shutil.copytree(world, data, copy_function=shutil.copy)  # with new times
    rgb, truth = data / habitatdyn.RGB, data / habitatdyn.DEPTH
    words = ("--rgb", rgb, "--depth", data / habitatdyn.ZOE, "--eval", truth, "--out", "out")
    found, line = training_scenes(infer(*words))
    assert found == {"frames": 12, "unknown": 0, "of": 16}
    assert line.startswith("12 of 16 evaluated frames are of scenes of the bundle's training")
    assert line.endswith(
        "(whole scenes are compared, so a part of one, or one of resized pictures, is another)"
    )

    every = sorted(rgb.iterdir())  # another picture in each scene: what scene it is is unknown
    for clip in every:
        shutil.copy(every[-1] / "00000.jpg", clip / "00003.jpg")
        shutil.copy(every[0] / "00001.jpg", clip / "00002.jpg")
    found, line = training_scenes(infer(*words))
    assert found["frames"] == 0 and found["unknown"] == 12
    assert line.endswith("unknown of 12: training had other pictures in scenes of their names")


def test_where_training_scenes_cannot_be_known_one_line_says_so(infer, bundle, alone, truth):
    found, line = training_scenes(infer(*FOLDERS, "--eval", "truth"))
    assert found["unknown"] == found["of"] == 16
    assert line.endswith("unknown whether these scenes are in the bundle's training data: "
                         "no data set around them tells their scenes")  # fmt: skip
    source = read_bundle(bundle)
    for changed, reason in (
        ({"training_scenes": {}}, "an earlier version exported the bundle"),
        ({"started_from_others": True}, "its training started from other weights"),
    ):
        digest = write(source.container, source.data, {}, source.manifest | changed, Path("b.ts"))
        trust(digest, Path("b.ts"))
        found, line = training_scenes(alone("b.ts", *FOLDERS, "--eval", "truth"))
        assert found["unknown"] == 16 and line.endswith(reason)


def test_a_refiner_that_is_no_better_is_to_be_left_away(infer, truth):
    """Pseudo depth that is the truth cannot become better; half of it can."""
    for name, true_m in metres_of_8_bits(truth).items():
        cv2.imwrite(str(Path("zoe") / name), np.rint(true_m * 256).astype(np.uint16))
    done = infer(*FOLDERS, "--eval", "truth")
    report = json.loads(Path("out/metrics.json").read_text())
    error = f"abs_rel is {report['refined']['abs_rel']:.4f} with it"
    assert f"leave the refiner out: {error} and 0.0" in done.out
    assert done.out.count("by the pseudo depth as it is") == 1
    assert advice(report, has_refiner=False) == ""
    better = report | {"refined": {"abs_rel": 0.0}, "pseudo": {"abs_rel": 0.1}}
    assert advice(better, has_refiner=True) == ""
    with_points = better | {"points": {"abs_rel": 0.0}}
    assert "0.0000 by the points alone" in advice(with_points, has_refiner=True)
