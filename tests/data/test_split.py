"""Split files, and which clips a config selects."""

import json

import pytest

from zoerefine.config import load_config
from zoerefine.data.dataset import Clip, Dataset, Frame, Selection, select
from zoerefine.data.habitatdyn import classes_of
from zoerefine.data.split import Split, keep_split, read_split, write_split
from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.train.job import prepare

SPLIT = Split(("a", "b"), ("c",), ("d",))


def test_a_split_is_kept_and_read_for_the_scenes_that_are_there(tmp_path):
    path = tmp_path / "split.json"
    write_split(SPLIT, path)
    assert read_split(path) == SPLIT
    assert read_split(path, ["a", "d", "z"]) == Split(("a",), (), ("d",))
    keep_split(SPLIT, path)
    with pytest.raises(UserError, match=r"not the split that the config gives"):
        keep_split(Split(("a",), ("b",), ()), path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no split"),
        ("[]", "is no split"),
        ('{"train": ["a"]}', "is no split"),
        ('{"train": ["a"], "val": ["a"], "test": []}', "names a twice"),
        ('{"train": [], "val": ["a"], "test": []}', "no scene to train on"),
    ],
)
def test_what_is_no_split_is_named(tmp_path, text, words):
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(UserError, match=words):
        read_split(tmp_path / "split.json")


def test_a_run_uses_a_split_file_and_keeps_it(script, tiny, world, tmp_path):
    made = script("data", "split", world, "--out", "split.json", "--val", "0.25", "--test", "0",
                  "--test-scenes", "scene02", "--seed", "3")  # fmt: skip
    assert made.returncode == 0, made.stderr
    split = json.loads((tmp_path / "split.json").read_text())
    assert split["test"] == ["scene02"]
    done = script("train", "--config", tiny, "DATA.SPLIT", "split.json")
    assert done.returncode == 0, done.stderr
    run = RunDir(tmp_path / done.stdout.splitlines()[-1])
    assert run.read_json(run.split_file) == split
    assert list(run.read_json(run.results_file)["test_scenes"]) == ["scene02"]


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
        (Selection(), "0123"),
        (Selection(scenes=["attic"]), "23"),
        (Selection(classes=["dog"]), "01"),
        (Selection(speeds=[1]), "02"),
        (Selection(objects="single"), "02"),
        (Selection(objects="several"), "1"),
        (Selection(scenes=["kitchen"], speeds=[2]), "1"),
    ],
)
def test_clips_are_selected_by_scene_class_speed_and_number(tmp_path, selection, names):
    frames = tuple(Frame(clip.name, "f", clip.scene, tmp_path, None, None, None) for clip in CLIPS)
    dataset = Dataset(tmp_path, "", "", "", 1.0, 1.0, frames, CLIPS)
    found = select(dataset, selection)
    assert "".join(clip.name for clip in found.clips) == names
    assert "".join(frame.clip for frame in found.frames) == names


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(scenes=["cellar"]), r"DATA\.SCENES: no clip of .* has 'cellar'; attic, kitchen"),
        (Selection(classes=["cow"]), r"DATA\.CLASSES.*dog, people"),
        (Selection(speeds=[9]), r"DATA\.SPEEDS.*1, 2"),
        (Selection(objects="many"), "single, several or empty"),
        (Selection(scenes=["attic"], speeds=[2]), "no clip of .* fits"),
    ],
)
def test_a_selection_of_nothing_says_what_there_is(tmp_path, selection, words):
    with pytest.raises(UserError, match=words):
        select(Dataset(tmp_path, "", "", "", 1.0, 1.0, (), CLIPS), selection)


def test_classes_are_read_from_titles_as_people_write_them():
    assert classes_of("scene03_dog_toy_car_3_2") == ("dog", "toy car")
    assert classes_of("Kitchen-ToyCar-people-1") == ("people", "toy car")
    assert classes_of("") == ()
