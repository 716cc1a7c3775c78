"""Split files, and which clips a config selects."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.depth.data.dataset import Clip, Dataset, Frame, select
from zoerefine.depth.data.depth_codec import MILLIMETRES
from zoerefine.depth.data.layouts.habitatdyn import classes_of
from zoerefine.depth.data.split import (
    Split,
    read_split,
    split_scenes,
    write_or_check_split,
    write_split,
)
from zoerefine.depth.training.job import find_data, prepare, run_training

SPLIT = Split(("a", "b"), ("c",), ("d",))


def test_a_split_is_read_for_given_scenes_and_must_not_change(tmp_path):
    path = tmp_path / "split.json"
    write_split(SPLIT, path)
    assert read_split(path) == SPLIT
    assert read_split(path, ["a", "d", "z"]) == Split(("a",), (), ("d",))
    write_or_check_split(SPLIT, path)
    with pytest.raises(UserError, match=r"not the split that the config gives"):
        write_or_check_split(Split(("a",), ("b",), ()), path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no split"),
        ("[]", "is no split"),
        ('{"train": ["a"]}', "is no split"),
        ('{"train": ["a"], "val": ["a"], "test": []}', "names a twice"),
        ('{"train": [], "val": ["a"], "test": []}', "has no training scene"),
    ],
)
def test_a_file_that_is_no_split_is_named(tmp_path, text, words):
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(UserError, match=words):
        read_split(tmp_path / "split.json")


def test_a_run_uses_a_split_file_and_keeps_it(data_command, tiny, world, tmp_path):
    data_command("split", world, "--out", "split.json", "--val", "0.25", "--test", "0",
                        "--test-scenes", "scene02", "--seed", "3")  # fmt: skip
    split = json.loads((tmp_path / "split.json").read_text())
    assert split["test"] == ["scene02"]
    run = run_training(load_config(tiny, ["DATA.SPLIT", "split.json"]))
    assert run.read_json(run.split_file) == split
    assert list(run.read_json(run.results_file)["test_scenes"]) == ["scene02"]
    split["train"], split["test"] = [*split["train"][1:], "scene02"], split["train"][:1]
    (tmp_path / "split.json").write_text(json.dumps(split))
    other = run_training(load_config(tiny, ["DATA.SPLIT", "split.json"]))
    assert other.path != run.path and other.read_json(other.split_file) == split


def test_a_split_file_that_changes_after_it_was_recorded_is_not_trained(
    tiny, tmp_path, monkeypatch
):
    def find_and_exchange(cfg):
        found = find_data(cfg)
        write_split(Split(("scene00",), ("scene02",), ("scene03",)), tmp_path / "split.json")
        return found

    write_split(Split(("scene00",), ("scene03",), ("scene02",)), tmp_path / "split.json")
    monkeypatch.setattr("zoerefine.depth.training.job.find_data", find_and_exchange)
    with pytest.raises(UserError, match="has changed since this training recorded it"):
        run_training(load_config(tiny, ["DATA.SPLIT", "split.json"]))


def test_a_split_file_that_does_not_fit_the_data_is_named(tiny, tmp_path, capsys):
    split = {"train": ["scene00"], "val": ["scene1"], "test": ["scene03"]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    _, found = find_data(load_config(tiny, ["DATA.SPLIT", "split.json"]))
    assert found == Split(("scene00",), (), ("scene03",))
    assert capsys.readouterr().err == (
        f"warning: {tmp_path}/split.json lacks 2 scenes (scene01, scene02) of the data, which are "
        "not used\n"
        f"warning: the data lack 1 scene (scene1) of {tmp_path}/split.json\n"
    )
    chosen = ["DATA.SCENES", "[scene00, scene03]"]
    find_data(load_config(tiny, ["DATA.SPLIT", "split.json", *chosen]))
    assert capsys.readouterr().err == ""
    held_out = ["DATA.TEST_SCENES", "[scene00, scene03]"]
    with pytest.raises(UserError, match=r"DATA\.TEST_SCENES: scene00 is no test scene of DATA\.SP"):
        find_data(load_config(tiny, ["DATA.SPLIT", "split.json", *held_out]))


def test_a_config_selects_clips_before_they_are_packed(tiny, world):
    cache, split = prepare(load_config(tiny, ["DATA.SCENES", "[scene00, scene01, scene03]"]))
    assert cache.scenes == ("scene00", "scene01", "scene03")
    assert len(cache) == 12
    assert len(split.train + split.val + split.test) == 3


CLIPS = (
    Clip("0", "kitchen", speed=1, classes=("dog",)),
    Clip("1", "kitchen", speed=2, classes=("dog", "people")),
    Clip("2", "attic", speed=1, classes=("people",)),
    Clip("3", "attic"),
)


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (dict(), "0123"),
        (dict(scenes=["attic"]), "23"),
        (dict(classes=["dog"]), "01"),
        (dict(speeds=[1]), "02"),
        (dict(objects="single"), "02"),
        (dict(objects="several"), "1"),
        (dict(scenes=["kitchen"], speeds=[2]), "1"),
    ],
)
def test_clips_are_selected_by_scene_class_speed_and_number_of_classes(tmp_path, selection, names):
    frames = tuple(Frame(clip.name, "f", clip.scene, tmp_path, None, None, None) for clip in CLIPS)
    dataset = Dataset(tmp_path, "", "", MILLIMETRES, frames, CLIPS)
    found = select(dataset, **selection)
    assert "".join(clip.name for clip in found.clips) == names
    assert "".join(frame.clip for frame in found.frames) == names


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (dict(scenes=["cellar"]), r"DATA\.SCENES: no .* has 'cellar'; known: attic, kitchen"),
        (dict(classes=["cow"]), r"DATA\.CLASSES.*dog, people"),
        (dict(speeds=[9]), r"DATA\.SPEEDS.*1, 2"),
        (dict(scenes=["attic"], speeds=[2]), "no clip of .* matches all"),
    ],
)
def test_a_selection_without_clips_lists_what_is_known(tmp_path, selection, words):
    with pytest.raises(UserError, match=words):
        select(Dataset(tmp_path, "", "", MILLIMETRES, (), CLIPS), **selection)


def test_classes_are_read_from_titles_however_they_are_spelled():
    assert classes_of("scene03_dog_toy_car_3_2") == ("dog", "toy car")
    assert classes_of("Kitchen-ToyCar-people-1") == ("people", "toy car")
    assert classes_of("") == ()


@settings(max_examples=30)
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
    # Without validation, its scenes move to training and the test scenes stay the same.
    assert split_scenes(scenes, 0, test, seed).test == split.test


def test_named_test_scenes_are_tested_and_unknown_ones_refused():
    scenes = ["a", "b", "c", "d"]
    split = split_scenes(scenes, 0.25, 0, 0, ["b", "b"])
    assert split.test == ("b",)
    assert len(split.val) == 1
    with pytest.raises(UserError, match="no scene x"):
        split_scenes(scenes, 0.25, 0, 0, ["x"])
    with pytest.raises(UserError, match="2 scenes cannot be split"):
        split_scenes(["a", "b"], 0.1, 0.1, 0)


@pytest.mark.parametrize("share", ["inf", "nan", "-0.1", "1"])
def test_a_share_that_is_none_is_refused(refused, world, share):
    line = refused("split", world, "--out", "split.json", f"--val={share}")
    assert line == f"error: --val must be a share of at least 0 and below 1, got {share}"


def test_a_split_never_overwrites_another_kind_of_file(world, tmp_path, data_command, refused):
    path = tmp_path / "notes.json"
    path.write_text('{"mine": 1}')
    assert "notes.json is no split of scenes" in refused("split", world, "--out", path)
    assert path.read_text() == '{"mine": 1}'
    words = ["split", world, "--out", "split.json", "--val", "0.25", "--test", "0.25"]
    assert [data_command(*words).code for _ in range(2)] == [0, 0]
    written = Path("split.json").read_bytes()
    line = refused(*words, "--seed", "5")
    assert line == (
        "error: split.json is another split and would be overwritten: move it, or give another "
        "--out"
    )
    assert Path("split.json").read_bytes() == written


def test_a_split_below_a_file_is_one_line(world, tmp_path, script):
    (tmp_path / "file").touch()
    done = script("data", "split", world, "--out", "file/split.json", code=2)
    assert done.stderr == "error: file: File exists\n"
