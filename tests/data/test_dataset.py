"""The two layouts, and splits by scene."""

import csv
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.data import habitatdyn
from zoerefine.data.decode import read_depth, read_objects, read_rgb, read_zoe
from zoerefine.data.readers import open_dataset
from zoerefine.data.split import split_scenes
from zoerefine.errors import UserError


def frames_csv_of(world, root):
    """The same frames as the world's, as a frames.csv with scenes."""
    dataset = open_dataset(world)
    root.mkdir()
    with open(root / "frames.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["clip", "rgb", "depth", "pseudo", "objects"])
        for frame in dataset.frames:
            rows.writerow([frame.clip, *(root / p for p in (frame.rgb, frame.depth, frame.zoe)),
                           frame.objects])  # fmt: skip
    return root


def test_habitatdyn_frames_are_paired_by_name_and_labelled_as_synthetic(world):
    dataset = open_dataset(world)
    assert dataset.layout == "habitatdyn"
    assert "synthetic" in dataset.label
    assert "ZoeDepth" not in dataset.pseudo_label
    assert dataset.scenes == ("scene00", "scene01", "scene02", "scene03")
    assert [frame.clip for frame in dataset.frames[::4]] == ["0000", "0054", "0108", "0162"]
    for frame in dataset.frames:
        assert {path.stem for path in frame.files} == {frame.name}
        assert {path.parent.name for path in frame.files} == {frame.clip}
    assert all(1 <= clip.speed <= 3 for clip in dataset.clips)


def test_real_habitatdyn_is_called_by_its_name(world, tmp_path):
    shutil.copytree(world, tmp_path / "real")
    (tmp_path / "real" / habitatdyn.SYNTHETIC_MARK).unlink()
    dataset = open_dataset(tmp_path / "real")
    assert (dataset.label, dataset.pseudo_label) == ("HabitatDyn", "ZoeDepth")


def test_encodings_are_those_of_the_files(world):
    dataset = open_dataset(world)
    frame = dataset.frames[5]
    import cv2

    raw = cv2.imread(str(frame.depth), cv2.IMREAD_UNCHANGED)
    depth = read_depth(frame.depth)
    assert raw.dtype == np.uint8
    known = raw < 255
    np.testing.assert_allclose(
        depth[known] * dataset.depth_scale, raw[known] / 255 * 10, rtol=1e-12
    )
    assert (depth[~known] == 0).all()
    assert read_zoe(frame.zoe).dtype == np.uint16
    assert read_objects(frame.objects).max() <= 6
    assert read_rgb(frame.rgb).shape == (48, 64, 3)


def test_a_frames_csv_gives_the_same_frames_with_its_own_scenes(world, tmp_path):
    dataset = open_dataset(frames_csv_of(world, tmp_path / "list"))
    assert dataset.layout == "frames_csv"
    assert dataset.scenes == ("0000", "0054", "0108", "0162")
    assert dataset.depth_scale == 0.001
    assert len(set(dataset.stamps().tolist())) == 16  # of files outside the folder, too
    assert [f.rgb for f in dataset.frames] == [f.rgb for f in open_dataset(world).frames]


def test_faults_of_folders_are_named(world, tmp_path):
    with pytest.raises(UserError, match=r"no data folder .*absent"):
        open_dataset(tmp_path / "absent")
    with pytest.raises(UserError, match="is no data set"):
        open_dataset(tmp_path)
    root = frames_csv_of(world, tmp_path / "list")
    text = (root / "frames.csv").read_text()
    (root / "frames.csv").write_text(text.replace("00002.jpg", "missing.jpg"))
    with pytest.raises(UserError, match=r"frames\.csv line 4: no file .*missing\.jpg"):
        open_dataset(root)
    (root / "frames.csv").write_text(text.replace("pseudo", "zoe"))
    with pytest.raises(UserError, match="lacks the columns pseudo"):
        open_dataset(root)
    (tmp_path / "x" / habitatdyn.RGB / "clip").mkdir(parents=True)
    (tmp_path / "x" / habitatdyn.RGB / "clip" / "00000.jpg").touch()
    with pytest.raises(UserError, match="clip folder 'clip' should be a number"):
        open_dataset(tmp_path / "x")


@given(
    count=st.integers(3, 40),
    val=st.floats(0, 0.3),
    test=st.floats(0, 0.3),
    seed=st.integers(0, 99),
)
def test_splits_are_by_scene_seeded_and_leave_nothing_out(count, val, test, seed):
    scenes = [f"scene{i:02d}" for i in range(count)]
    split = split_scenes(scenes, val, test, seed)
    assert sorted(split.train + split.val + split.test) == scenes
    assert (len(split.val) > 0, len(split.test) > 0) == (val > 0, test > 0)
    assert split == split_scenes(scenes[::-1], val, test, seed)
    # Giving validation up moves its scenes to training and leaves the test alone.
    assert split_scenes(scenes, 0, test, seed).test == split.test


def test_named_test_scenes_are_tested_and_unknown_ones_refused():
    scenes = ["a", "b", "c", "d"]
    split = split_scenes(scenes, 0.25, 0, 0, ["b"])
    assert split.test == ("b",)
    assert len(split.val) == 1
    with pytest.raises(UserError, match="no scene x"):
        split_scenes(scenes, 0.25, 0, 0, ["x"])
    with pytest.raises(UserError, match="2 scenes cannot be split"):
        split_scenes(["a", "b"], 0.1, 0.1, 0)
