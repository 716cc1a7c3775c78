"""Image files: decoding with every fault named, encoding checked, notes in PNG text chunks.

OpenCV decodes and encodes pixels, because it is two to three times as fast as Pillow. Pillow
does the rest: palettes, EXIF tags and text chunks. Colours are RGB everywhere outside this file.

Pixels are read as they are stored. An EXIF orientation is not applied, because the depth and the
object ids of a picture are stored in the same pixel order and have no such tag.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
from PIL import ExifTags, Image, PngImagePlugin

from zoerefine.errors import UserError
from zoerefine.files import replacing

JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"
PNG_END = b"IEND\xaeB`\x82"
AFTER_PNG_HEADER = 33  # the signature (8 bytes) and the IHDR chunk (25) come first
UPRIGHT = 1  # the EXIF orientation of a picture that is stored as it is to be shown
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)  # by Pillow

Array = np.ndarray


def read_rgb(path: Path) -> Array:
    """A picture of any mode as uint8 [H, W, 3], RGB. Transparency is ignored.

    Raises `UserError` for a file that is missing, cut short, damaged or no JPEG or PNG.
    """
    return _decode(path, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)


def read_values(path: Path) -> Array:
    """A one-channel picture's values, uint8 or uint16 [H, W]; of a palette PNG, its indices.

    Three equal channels, as some annotation tools write, count as one.
    Raises `UserError` as `read_rgb` does, and for a colour picture.
    """
    picture = _decode(path, cv2.IMREAD_UNCHANGED)  # does not apply an EXIF orientation either
    if picture.ndim == 2:
        return picture
    with Image.open(path) as image:
        if image.mode == "P":
            return np.asarray(image)
    if (picture[..., :3] != picture[..., :1]).any():
        raise UserError(f"{path} is a colour picture: expected one channel")
    if picture.shape[2] == 4 and (picture[..., 3] != np.iinfo(picture.dtype).max).any():
        raise UserError(f"{path} has transparent pixels: write 0 for invalid pixels instead")
    return np.ascontiguousarray(picture[..., 0])


def exif_orientation(path: Path) -> int:
    """The EXIF orientation of a JPEG or PNG, 1 to 8; 1 (stored upright) where there is no tag."""
    try:
        with Image.open(path) as image:
            return int(image.getexif().get(ExifTags.Base.Orientation, UPRIGHT))
    except UNREADABLE:  # decoding the file says what is wrong with it
        return UPRIGHT


def picture_size(path: Path) -> tuple[int, int] | None:
    """Width and height as stored, from a file's header alone; None where there is none."""
    try:
        with Image.open(path) as image:
            return image.size
    except UNREADABLE:  # decoding the file says what is wrong with it
        return None


def png_bytes(pixels: Array, text: Mapping[str, str] | None = None) -> bytes:
    """A PNG file's bytes.

    Args:
        pixels: uint8 or uint16 [H, W], or uint8 [H, W, 3] RGB.
        text: notes to store by keyword (1 to 79 Latin-1 characters). They stand before the
            pixels, so that `png_text` need not read those.
    """
    data = _encode(".png", pixels, [])
    if not text:
        return data
    notes = PngImagePlugin.PngInfo()
    for keyword, value in text.items():
        notes.add_text(keyword, value)
    chunks = io.BytesIO()
    for kind, body, *_ in notes.chunks:
        PngImagePlugin.putchunk(chunks, kind, body)
    return data[:AFTER_PNG_HEADER] + chunks.getvalue() + data[AFTER_PNG_HEADER:]


def png_text(path: Path) -> dict[str, str]:
    """The text chunks before a PNG's pixels, by keyword; empty where there is no such PNG."""
    try:
        with Image.open(path, formats=["PNG"]) as image:
            notes = image.info.items()
            return {str(keyword): text for keyword, text in notes if isinstance(text, str)}
    except UNREADABLE:
        return {}


def jpeg_bytes(rgb: Array, quality: int) -> bytes:
    """A JPEG file's bytes, of uint8 [H, W, 3] RGB; quality 0 to 100."""
    return _encode(".jpg", rgb, [cv2.IMWRITE_JPEG_QUALITY, quality])


def write_png(path: Path, pixels: Array, text: Mapping[str, str] | None = None) -> None:
    """Write a PNG file whole or not at all; see `png_bytes`.

    Raises `UserError` where the file cannot be written.
    """
    write_bytes(path, png_bytes(pixels, text))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises `UserError` where it cannot be written."""
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None


def _decode(path: Path, flags: int) -> Array:
    """Decode a file. Its end is checked first, because OpenCV fills the missing part with grey."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    is_jpeg = data.startswith(JPEG_START)
    is_whole = data.rstrip(b"\0").endswith(JPEG_END) if is_jpeg else PNG_END in data[-64:]
    if not is_whole:
        raise UserError(f"{path} is cut short or no picture ({len(data)} bytes): copy it again")
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if picture is None:
        raise UserError(f"{path} is a damaged picture: copy it again")
    return picture


def _encode(suffix: str, pixels: Array, options: list[int]) -> bytes:
    """Encode a picture. Raises `ValueError` for pixels that the format cannot hold."""
    stored = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR) if pixels.ndim == 3 else pixels
    done, data = cv2.imencode(suffix, stored, options)
    if not done:
        raise ValueError(f"no {suffix} of {pixels.dtype} {list(pixels.shape)} could be encoded")
    return data.tobytes()
