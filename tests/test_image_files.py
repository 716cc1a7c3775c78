"""Image files: pixels of any mode as they are stored, notes, and faults that name the file."""

import cv2
import numpy as np
import pytest
from PIL import ExifTags, Image

from zoerefine.errors import UserError
from zoerefine.image_files import (
    exif_orientation,
    jpeg_bytes,
    png_bytes,
    png_text,
    read_rgb,
    read_values,
    write_png,
)

RNG = np.random.default_rng(0)
RGB = cv2.resize(RNG.integers(0, 256, (6, 8, 3), np.uint8), (64, 48))


def saved(path, pixels, **options):
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(path, **options)
    return path


@pytest.mark.parametrize(
    "pixels",
    [RNG.integers(0, 256, (5, 7), np.uint8), RNG.integers(0, 65536, (5, 7), np.uint16), RGB],
    ids=["8 bits", "16 bits", "colour"],
)
def test_a_written_png_has_the_same_pixels_and_text_for_any_reader(tmp_path, pixels):
    text = {"made-by": "commit 1a2b", "place": "Küche 偽"}
    write_png(tmp_path / "a.png", pixels, text)
    with Image.open(tmp_path / "a.png") as image:
        image.load()
        np.testing.assert_array_equal(np.asarray(image), pixels)
        assert image.text == text
    assert png_text(tmp_path / "a.png") == text
    read = read_rgb if pixels.ndim == 3 else read_values
    np.testing.assert_array_equal(read(tmp_path / "a.png"), pixels)


def test_no_notes_are_read_from_what_is_no_whole_png(tmp_path):
    assert png_text(tmp_path / "absent.png") == {}
    (tmp_path / "a.png").write_bytes(png_bytes(RGB, {"key": "value"})[:60])
    assert png_text(tmp_path / "a.png") == {}
    (tmp_path / "b.png").write_bytes(jpeg_bytes(RGB, 90))
    assert png_text(tmp_path / "b.png") == {}


def test_pixels_that_no_png_can_hold_are_a_defect_not_an_empty_file():
    with pytest.raises((ValueError, cv2.error)):
        png_bytes(np.zeros((2, 2, 5), np.uint8))
    with pytest.raises((ValueError, cv2.error)):
        png_bytes(np.zeros((0, 4), np.uint8))


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()  # a folder without rights would not stop root
    with pytest.raises(UserError, match=r"file/a\.png cannot be written: File exists"):
        write_png(tmp_path / "file" / "a.png", RGB)


MODES = {
    "grey": (Image.fromarray(RGB[..., 0]), np.repeat(RGB[..., :1], 3, 2)),
    "palette": (Image.fromarray(RGB).quantize(16), None),
    "alpha": (Image.fromarray(np.dstack([RGB, RGB[..., 0]])), RGB),
    "grey and alpha": (Image.fromarray(RGB[..., 0]).convert("LA"), np.repeat(RGB[..., :1], 3, 2)),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_png_of_any_mode_is_read_as_rgb(tmp_path, mode):
    image, expected = MODES[mode]
    if expected is None:
        expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(read_rgb(saved(tmp_path / "a.png", image)), expected)


def test_16_bit_colours_are_read_with_their_upper_8_bits(tmp_path):
    deep = RNG.integers(0, 65536, (5, 7, 3), np.uint16)
    assert cv2.imwrite(str(tmp_path / "a.png"), deep[..., ::-1])
    np.testing.assert_array_equal(read_rgb(tmp_path / "a.png"), deep >> 8)


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_a_jpeg_of_any_mode_is_read_as_rgb(tmp_path, mode):
    image = Image.fromarray(RGB).convert(mode)
    path = saved(tmp_path / "a.jpg", image, quality=95)
    with Image.open(path) as stored:
        expected = np.asarray(stored.convert("RGB")).astype(int)
    assert np.abs(read_rgb(path) - expected).max() <= 2  # two decoders round differently


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_an_exif_orientation_is_reported_and_not_applied(tmp_path, suffix, orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    plain = saved(tmp_path / f"plain{suffix}", RGB)
    turned = saved(tmp_path / f"turned{suffix}", RGB, exif=exif)
    np.testing.assert_array_equal(read_rgb(turned), read_rgb(plain))
    assert (exif_orientation(turned), exif_orientation(plain)) == (orientation, 1)


def test_depth_and_ids_are_not_turned_either(tmp_path):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(read_values(saved(tmp_path / "a.png", values, exif=exif)), values)


def test_a_palette_png_has_the_values_of_its_indices(tmp_path):
    ids = RNG.integers(0, 7, (5, 9), np.uint8)
    image = Image.fromarray(ids)
    image.putpalette(RNG.integers(0, 256, 7 * 3).tolist())  # as DAVIS masks are stored
    path = saved(tmp_path / "ids.png", image)
    assert Image.open(path).mode == "P"
    np.testing.assert_array_equal(read_values(path), ids)


def test_one_channel_may_be_stored_as_three_equal_ones(tmp_path):
    values = np.array([[0, 1, 254]], np.uint8)
    three = np.repeat(values[..., None], 3, 2)
    np.testing.assert_array_equal(read_values(saved(tmp_path / "a.png", three)), values)
    opaque = Image.fromarray(values).convert("LA")
    np.testing.assert_array_equal(read_values(saved(tmp_path / "b.png", opaque)), values)


def test_values_with_colours_or_transparency_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"a\.png is a colour picture"):
        read_values(saved(tmp_path / "a.png", RGB))
    hidden = np.dstack([RGB[..., :1]] * 3 + [np.zeros((48, 64, 1), np.uint8)])
    with pytest.raises(UserError, match=r"b\.png has transparent pixels"):
        read_values(saved(tmp_path / "b.png", hidden))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("404: not found\n")


def folder(path):
    path.unlink()
    path.mkdir()


def absent(path):
    path.unlink()


@pytest.mark.parametrize("damage", [cut, empty, text, folder, absent], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("name", "read"), [("a.jpg", read_rgb), ("a.png", read_values)])
def test_a_damaged_file_is_named(tmp_path, name, read, damage):
    path = saved(tmp_path / name, RGB)
    damage(path)
    with pytest.raises(UserError, match=name):
        read(path)
