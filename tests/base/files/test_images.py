"""Image files: pixels of any mode as they are stored, notes, and faults that name the file."""

import os
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import ExifTags, Image

from tests.processes import run_new_python
from zoerefine.base.errors import UserError
from zoerefine.base.files import images

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
    images.write_png(tmp_path / "a.png", pixels, text)
    with Image.open(tmp_path / "a.png") as image:
        image.load()
        np.testing.assert_array_equal(np.asarray(image), pixels)
        assert image.text == text
    assert images.png_text(tmp_path / "a.png") == text
    read = images.read_rgb if pixels.ndim == 3 else images.read_values
    np.testing.assert_array_equal(read(tmp_path / "a.png"), pixels)


def test_no_notes_are_read_from_what_is_no_whole_png(tmp_path):
    assert images.png_text(tmp_path / "absent.png") == {}
    (tmp_path / "a.png").write_bytes(images.png_bytes(RGB, {"key": "value"})[:60])
    assert images.png_text(tmp_path / "a.png") == {}
    (tmp_path / "b.png").write_bytes(images.jpeg_bytes(RGB, 90))
    assert images.png_text(tmp_path / "b.png") == {}


def test_pixels_that_no_png_can_hold_are_a_defect_not_an_empty_file():
    with pytest.raises((ValueError, cv2.error)):
        images.png_bytes(np.zeros((2, 2, 5), np.uint8))
    with pytest.raises((ValueError, cv2.error)):
        images.png_bytes(np.zeros((0, 4), np.uint8))


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()  # a folder without rights would not stop root
    with pytest.raises(UserError, match=r"file/a\.png cannot be written: File exists"):
        images.write_png(tmp_path / "file" / "a.png", RGB)


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
    np.testing.assert_array_equal(images.read_rgb(saved(tmp_path / "a.png", image)), expected)


def test_16_bit_colours_are_read_with_their_upper_8_bits(tmp_path):
    deep = RNG.integers(0, 65536, (5, 7, 3), np.uint16)
    assert cv2.imwrite(str(tmp_path / "a.png"), deep[..., ::-1])
    np.testing.assert_array_equal(images.read_rgb(tmp_path / "a.png"), deep >> 8)


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_a_jpeg_of_any_mode_is_read_as_rgb(tmp_path, mode):
    image = Image.fromarray(RGB).convert(mode)
    path = saved(tmp_path / "a.jpg", image, quality=95)
    with Image.open(path) as stored:
        expected = np.asarray(stored.convert("RGB")).astype(int)
    assert np.abs(images.read_rgb(path) - expected).max() <= 2  # two decoders round differently


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_an_exif_orientation_is_reported_and_not_applied(tmp_path, suffix, orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    plain = saved(tmp_path / f"plain{suffix}", RGB)
    turned = saved(tmp_path / f"turned{suffix}", RGB, exif=exif)
    np.testing.assert_array_equal(images.read_rgb(turned), images.read_rgb(plain))
    assert (images.exif_orientation(turned), images.exif_orientation(plain)) == (orientation, 1)


def test_depth_and_ids_are_not_turned_either(tmp_path):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(
        images.read_values(saved(tmp_path / "a.png", values, exif=exif)), values
    )


def test_a_palette_png_has_the_values_of_its_indices(tmp_path):
    ids = RNG.integers(0, 7, (5, 9), np.uint8)
    image = Image.fromarray(ids)
    image.putpalette(RNG.integers(0, 256, 7 * 3).tolist())  # as DAVIS masks are stored
    path = saved(tmp_path / "ids.png", image)
    assert Image.open(path).mode == "P"
    np.testing.assert_array_equal(images.read_values(path), ids)


def test_one_channel_may_be_stored_as_three_equal_ones(tmp_path):
    values = np.array([[0, 1, 254]], np.uint8)
    three = np.repeat(values[..., None], 3, 2)
    np.testing.assert_array_equal(images.read_values(saved(tmp_path / "a.png", three)), values)
    opaque = Image.fromarray(values).convert("LA")
    np.testing.assert_array_equal(images.read_values(saved(tmp_path / "b.png", opaque)), values)


def test_values_with_colours_or_transparency_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"a\.png is a colour picture"):
        images.read_values(saved(tmp_path / "a.png", RGB))
    hidden = np.dstack([RGB[..., :1]] * 3 + [np.zeros((48, 64, 1), np.uint8)])
    with pytest.raises(UserError, match=r"b\.png has transparent pixels"):
        images.read_values(saved(tmp_path / "b.png", hidden))


DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("404: not found\n"),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "absent": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("name", "read"), [("a.jpg", images.read_rgb), ("a.png", images.read_values)]
)
def test_a_damaged_file_is_named(tmp_path, name, read, damage):
    path = saved(tmp_path / name, RGB)
    DAMAGES[damage](path)
    with pytest.raises(UserError, match=name):
        read(path)


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 30}]
)
def test_a_jpeg_has_the_pixels_that_opencv_decodes(tmp_path, options):
    path = saved(tmp_path / "a.jpg", RGB, **options)
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    np.testing.assert_array_equal(images.read_rgb(path), cv2.imread(str(path), flags))


def hole(data):
    """512 bytes in the middle are 0, as on a disk with a bad sector."""
    middle = len(data) // 2
    return data[: middle - 256] + bytes(512) + data[middle + 256 :]


def ended_early(data):
    """Cut, with the mark of a JPEG's end."""
    return data[: len(data) // 2] + b"\xff\xd9"


@pytest.mark.parametrize("damage", [hole, ended_early])
def test_a_jpeg_that_libjpeg_only_warns_of_is_damaged(tmp_path, damage):
    noise = RNG.integers(0, 256, (48, 64, 3), np.uint8)
    path = saved(tmp_path / "a.jpg", noise, quality=95)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"a\.jpg is cut short or a damaged picture \(.*\)"):
        images.read_rgb(path)


def test_a_jpeg_may_be_followed_by_other_data(tmp_path):
    path = saved(tmp_path / "a.jpg", RGB)
    expected = images.read_rgb(path)
    path.write_bytes(path.read_bytes() + b"a phone's short video")
    np.testing.assert_array_equal(images.read_rgb(path), expected)


@pytest.mark.parametrize("kind", ["u16", "rgb"])
def test_any_changed_byte_of_a_pngs_pixels_is_found(tmp_path, kind):
    pixels = RGB if kind == "rgb" else RNG.integers(0, 65536, (48, 64), np.uint16)
    data = images.png_bytes(pixels)
    read = images.read_rgb if kind == "rgb" else images.read_values
    for place in RNG.integers(45, len(data) - 20, 20):
        changed = bytearray(data)
        changed[place] ^= 0x10
        (tmp_path / "a.png").write_bytes(changed)
        with pytest.raises(UserError, match=r"a\.png is cut short or a damaged picture"):
            read(tmp_path / "a.png")


def png_chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def grey_png(width, height, bits, data):
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    chunks = png_chunk(b"IHDR", header), png_chunk(b"IDAT", zlib.compress(data))
    return b"".join([b"\x89PNG\r\n\x1a\n", *chunks, png_chunk(b"IEND", b"")])


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_values_of_under_8_bits_are_refused_because_decoders_scale_them(tmp_path, bits):
    (tmp_path / "a.png").write_bytes(grey_png(8, 1, bits, bytes([0] + [0b00010010] * bits)))
    with pytest.raises(UserError, match=rf"a\.png has {bits} bits a pixel: write 8 or 16"):
        images.read_values(tmp_path / "a.png")


def test_values_in_a_jpeg_are_refused_because_it_changes_them(tmp_path):
    with pytest.raises(UserError, match=r"a\.png is a JPEG, .*: write a PNG"):
        images.read_values(saved(tmp_path / "a.png", RGB[..., 0], format="JPEG"))


# A whole 30000x30000 PNG of zeros has 0.9 MB. Reading it must fail before its pixels are decoded.
LARGE_PNG = """
import sys, resource
from pathlib import Path
import zoerefine.base.files.images as files
from zoerefine.base.errors import UserError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for read in (files.read_rgb, files.read_values):
    try:
        read(Path(sys.argv[1]))
    except UserError as error:
        print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_a_picture_with_too_many_pixels_is_refused_before_memory_is_taken(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "png":
        path.write_bytes(grey_png(30000, 30000, 8, bytes(30000)))
    else:
        data = images.jpeg_bytes(RGB, 90)
        path.write_bytes(data.replace(struct.pack(">HH", 48, 64), struct.pack(">HH", 30000, 30000)))
    first, *_, grown_kb = run_new_python(LARGE_PNG, path).stdout.splitlines()
    assert f"has 30000x30000 pixels, more than {images.MAX_PIXELS}: make it smaller" in first
    assert int(grown_kb) < 50_000


def test_a_chunk_that_is_longer_than_its_png_takes_no_memory(tmp_path):
    data = grey_png(8, 8, 8, bytes(72))
    at = data.index(b"IDAT") - 4
    (tmp_path / "a.png").write_bytes(data[:at] + struct.pack(">I", 2**31 - 1) + data[at + 4 :])
    *errors, grown_kb = run_new_python(LARGE_PNG, tmp_path / "a.png").stdout.splitlines()
    assert len(errors) == 2 and all("is cut short" in error for error in errors)
    assert int(grown_kb) < 50_000


def test_a_file_of_too_many_bytes_is_refused_by_its_size(tmp_path):
    with open(tmp_path / "a.png", "wb") as file:
        file.truncate(images.MAX_FILE_BYTES + 1)  # takes no disk space
    with pytest.raises(UserError, match=rf"a\.png has {images.MAX_FILE_BYTES + 1} bytes"):
        images.read_rgb(tmp_path / "a.png")


def test_a_limit_of_opencv_is_one_error(tmp_path):
    images.write_png(tmp_path / "a.png", np.zeros((48, 64), np.uint16))
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from zoerefine.base.files.images import read_values\n"
        "from zoerefine.cli import run_command\n"
        "sys.exit(run_command(lambda: read_values(Path('a.png'))))"
    )
    env = os.environ | {"OPENCV_IO_MAX_IMAGE_PIXELS": "100"}
    done = run_new_python(code, cwd=tmp_path, env=env, exit_code=2)
    assert "Traceback" not in done.stderr
    assert "error: a.png cannot be decoded: OpenCV says" in done.stderr


def test_a_named_pipe_is_no_picture(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png is not a regular file"):
        images.read_values(tmp_path / "a.png")
