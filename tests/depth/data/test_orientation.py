"""Pictures with an EXIF orientation are read as they are stored, and named by every command."""

import io

import pytest
from PIL import ExifTags, Image

from zoerefine.base.config import load_config
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.training.job import prepare


def turn(path, orientation):
    """Add an orientation to a JPEG, and change no pixel."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    data, body = path.read_bytes(), exif.tobytes()
    segment = b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body
    path.write_bytes(data[:2] + segment + data[2:])
    assert Image.open(io.BytesIO(path.read_bytes())).getexif()[0x0112] == orientation


@pytest.fixture
def turned_world(copied_world):
    """A world of which two pictures have the orientation 3: turned by 180 degrees."""
    for frame in open_dataset(copied_world).frames[:2]:
        turn(frame.rgb, 3)
    return copied_world


@pytest.mark.parametrize("mode", ["build", "fill", "off"])
def test_packing_warns_once_of_turned_pictures(turned_world, tiny, capsys, mode):
    cache, _ = prepare(load_config(tiny, ["DATA.ROOT", str(turned_world), "CACHE.MODE", mode]))
    for index in range(len(cache)):
        cache.read(index)
    err = capsys.readouterr().err
    assert err.count("has EXIF orientation 3, which is not applied") == 1
    assert "00000.jpg has EXIF" in err or "00001.jpg has EXIF" in err


def test_inspect_counts_turned_pictures(turned_world, data_command):
    assert "EXIF orientation: set in 2 pictures" in data_command("inspect", turned_world).out
