"""Whether all clips show one room: clips of one room are recognised, clips of several never."""

from dataclasses import replace

import numpy as np
import pytest

from zoerefine.base.files.images import read_rgb
from zoerefine.depth.data.dataset import Clip
from zoerefine.depth.data.inspect.inspection import inspect
from zoerefine.depth.data.inspect.one_room import (
    RoomComparison,
    compare_rooms,
    features,
    matching_points,
    weakest_link,
)
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.synthetic import synthesize


def synthetic(folder, scenes, clips, frames):
    synthesize(folder, scenes, clips, frames, seed=0, height=240, width=320)
    return open_dataset(folder)


@pytest.fixture(scope="module")
def one_room(tmp_path_factory):
    """Three clips of one synthetic room, whose views overlap."""
    return synthetic(tmp_path_factory.mktemp("one") / "world", 1, 3, frames=6)


@pytest.fixture(scope="module")
def many_rooms(tmp_path_factory):
    """A clip of each of four synthetic rooms."""
    return synthetic(tmp_path_factory.mktemp("many") / "world", 4, 1, frames=3)


def test_clips_of_one_room_are_recognised_and_that_is_no_fault(one_room):
    report, faults = inspect(one_room)
    assert "WARNING: all 3 clips seem to show one room" in report
    assert "a split by clip proves nothing" in report
    assert not faults


def test_clips_of_many_rooms_are_not_taken_for_one(many_rooms):
    report, _ = inspect(many_rooms)
    assert "no sign that all 4 clips show one room" in report
    assert "WARNING" not in report


def test_three_short_clips_of_a_real_kitchen_are_one_room():
    """They shared 19 points; different rooms share 11 at most."""
    assert RoomComparison(19, 3, 3).is_one_room
    assert not RoomComparison(11, 3, 3).is_one_room


def test_one_clip_of_another_room_is_enough_for_no_warning(one_room, many_rooms):
    other = [replace(frame, clip="other") for frame in many_rooms.frames if frame.clip == "0054"]
    clips = (*one_room.clips, Clip("other", "other"))
    mixed = replace(one_room, frames=(*one_room.frames, *other), clips=clips)
    assert not compare_rooms(mixed).is_one_room


def test_a_single_clip_is_compared_with_nothing(one_room):
    frames = tuple(frame for frame in one_room.frames if frame.clip == "0000")
    single = replace(one_room, frames=frames, clips=one_room.clips[:1])
    assert compare_rooms(single) is None
    assert "one room" not in inspect(single)[0]


def test_of_many_clips_a_sample_is_compared(one_room):
    clips = [f"{number:02d}" for number in range(12)]
    frames = tuple(replace(one_room.frames[0], clip=clip) for clip in clips)
    many = replace(one_room, frames=frames, clips=tuple(Clip(clip, clip) for clip in clips))
    found = compare_rooms(many)
    assert (found.compared, found.clips) == (8, 12)
    assert "all 12 clips (8 compared) seem to show one room" in inspect(many)[0]


def test_a_picture_matches_itself_and_an_empty_one_matches_nothing(one_room):
    picture = features(read_rgb(one_room.frames[0].rgb))
    empty = features(np.full((240, 320, 3), 90, np.uint8))
    assert matching_points(picture, picture) > 0.9 * len(picture.points)
    assert matching_points(picture, empty) == matching_points(empty, empty) == 0


def test_the_weakest_link_is_that_of_the_strongest_connection():
    chain = {(0, 1): 40, (0, 2): 1, (0, 3): 3, (1, 2): 20, (1, 3): 2, (2, 3): 30}
    assert weakest_link(chain, 4) == 20
    assert weakest_link({(0, 1): 7}, 2) == 7
    assert weakest_link({(0, 1): 90, (0, 2): 0, (1, 2): 0}, 3) == 0
