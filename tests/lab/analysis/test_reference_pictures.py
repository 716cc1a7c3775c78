"""Every kind of drawing looks like its stored picture; a changed one is noticed."""

import numpy as np
import pytest

from tests.lab.analysis.reference_pictures import (
    CHANGED_BLOCKS,
    FOLDER,
    changed_share,
    draw_all,
    read_reference,
)

NAMES = sorted(path.stem for path in FOLDER.glob("*.png"))
RENEW = "python -m tests.lab.analysis.reference_pictures draws it anew, if the change is wanted"


@pytest.fixture(scope="module")
def drawings(tmp_path_factory):
    return draw_all(tmp_path_factory.mktemp("runs"))


def test_every_kind_has_a_stored_picture(drawings):
    assert sorted(drawings) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_looks_like_its_stored_picture(drawings, name):
    assert changed_share(drawings[name], read_reference(name)) <= CHANGED_BLOCKS, RENEW


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_without_its_texts_or_colours_is_noticed(drawings, name):
    picture = drawings[name]
    height, width = picture.shape[:2]
    without_top = picture.copy()
    without_top[: height // 8] = 255  # titles
    assert changed_share(without_top, picture) > CHANGED_BLOCKS
    assert changed_share(picture[:, :, ::-1], picture) > CHANGED_BLOCKS  # other colours
    assert changed_share(np.roll(picture, width // 20, 1), picture) > CHANGED_BLOCKS


def test_other_hinting_of_the_same_texts_is_not_noticed(drawings):
    picture = drawings["overview-page"].astype(float)
    moved = 0.7 * picture + 0.3 * np.roll(picture, 1, 1)  # by a third of a pixel
    assert changed_share(moved.astype(np.uint8), drawings["overview-page"]) <= CHANGED_BLOCKS
