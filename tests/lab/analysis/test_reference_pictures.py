"""Every kind of drawing looks like its stored picture."""

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
