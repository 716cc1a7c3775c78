"""Image files: decoding with every fault named, encoding checked, notes in PNG text chunks.

OpenCV decodes PNG and encodes both formats, because it is two to three times as fast as Pillow.
simplejpeg decodes JPEG: it has the same decoder (libjpeg-turbo) and the same pixels, but reports
the decoder's warnings, so that damaged data are a fault. Pillow does the rest: palettes, EXIF tags
and text chunks. Colours are RGB everywhere outside this file.

Pixels are read as they are stored. An EXIF orientation is not applied, because the depth and the
object ids of a picture are stored in the same pixel order and have no such tag.
"""

import io
import struct
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
from PIL import ExifTags, Image, PngImagePlugin

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import read_regular_file, replacing
from zoerefine.base.files.own_files import PNG_START
from zoerefine.base.progress import warn

# Limits, checked before memory is taken.
MAX_PIXELS = 2**25  # 33.5 million, which 8K video does not reach
MAX_FILE_BYTES = 2**28

JPEG_START = b"\xff\xd8"
PNG_HEADER = struct.Struct(">8s4x4sIIBB")  # signature, b"IHDR", width, height, bits, colour type
PNG_CHUNK = struct.Struct(">I4s")  # length of its data, name
PNG_AROUND_CHUNK = 12  # bytes besides its data: length, name, checksum
GREY, PALETTE = 0, 3  # PNG's colour types
AFTER_PNG_HEADER = 33  # the signature (8 bytes) and the IHDR chunk (25) come first
EXIF_MARKS = (b"Exif", b"eXIf", b"exif")
EXIF_WITHIN = 2**16  # bytes of a file's beginning in which an EXIF tag is looked for
UPRIGHT = 1  # the EXIF orientation of a picture that is stored as it is to be shown
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)  # by Pillow

# Pillow warns of pictures that `check_pixels` refuses.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

Array = np.ndarray


def read_rgb(path: Path) -> Array:
    """A picture of any mode as uint8 [H, W, 3], RGB. Transparency is ignored.

    Raises `UserError` for a file that is missing, cut short, damaged, too large, or no JPEG or PNG.
    """
    return decode_rgb(file_bytes(path), str(path))


def decode_rgb(data: bytes, what: str) -> Array:
    """As `read_rgb`, for a file's bytes; `what` names them in messages."""
    _check_header(data, what)
    if data.startswith(JPEG_START):
        return _decode_jpeg(what, data)
    return _decode_png(what, data, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)


def read_values(path: Path) -> Array:
    """A one-channel PNG's values, uint8 or uint16 [H, W]; of a palette PNG, its indices.

    Three equal channels, as some annotation tools write, count as one.
    Raises `UserError` as `read_rgb` does, and for a JPEG, a colour picture or under 8 bits.
    """
    return decode_values(file_bytes(path), str(path))


def decode_values(data: bytes, what: str) -> Array:
    """As `read_values`, for a file's bytes; `what` names them in messages."""
    _check_header(data, what)
    if data.startswith(JPEG_START):
        raise UserError(f"{what} is a JPEG, which does not keep values exactly: write a PNG")
    *_, bits, kind = PNG_HEADER.unpack_from(data)
    if kind == GREY and bits < 8:  # a decoder would spread the values over 8 bits
        raise UserError(f"{what} has {bits} bits a pixel: write 8 or 16")
    picture = _decode_png(what, data, cv2.IMREAD_UNCHANGED)  # does not apply EXIF either
    if picture.ndim == 2:
        return picture
    if kind == PALETTE:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image)
    if (picture[..., :3] != picture[..., :1]).any():
        raise UserError(f"{what} is a colour picture: expected one channel")
    if picture.shape[2] == 4 and (picture[..., 3] != np.iinfo(picture.dtype).max).any():
        raise UserError(f"{what} has transparent pixels: write 0 for invalid pixels instead")
    return np.ascontiguousarray(picture[..., 0])


def exif_orientation(picture: Path | bytes) -> int:
    """The EXIF orientation of a JPEG or PNG, 1 to 8; 1 (stored upright) where there is no tag.

    Args:
        picture: a file, or its bytes.
    """
    try:
        with io.BytesIO(picture) if isinstance(picture, bytes) else open(picture, "rb") as file:
            beginning = file.read(EXIF_WITHIN)
            if not any(mark in beginning for mark in EXIF_MARKS):  # ten times as fast as Pillow
                return UPRIGHT
            image = Image.open(file)
            return int(image.getexif().get(ExifTags.Base.Orientation, UPRIGHT))
    except (*UNREADABLE, TypeError):  # decoding the file says what is wrong with it
        return UPRIGHT


class OrientationWarning:
    """Warns of the first turned picture; `note` may be called from any thread.

    A viewer turns such a picture, a network and a depth file do not. So depth that was made from
    the picture as a viewer shows it does not fit the picture as it is read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.turned = 0

    def note(self, path: Path, data: bytes | None = None) -> None:
        """Look at the tag of a picture that is read, in its bytes where they are known."""
        orientation = exif_orientation(data or path)
        if orientation == UPRIGHT:
            return
        with self._lock:
            self.turned += 1
            is_first = self.turned == 1
        if is_first:
            warn(
                f"{path} has EXIF orientation {orientation}, which is not applied: its depth must "
                "have the pixel order of the file (other such pictures are not named)"
            )


def picture_size(path: Path) -> tuple[int, int] | None:
    """Width and height as stored, from a file's header alone; None where there is none."""
    if not path.is_file():  # a pipe would be waited for
        return None
    try:
        with Image.open(path) as image:
            return image.size
    except UNREADABLE:  # decoding the file says what is wrong with it
        return None


def stored_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from a JPEG's or PNG's header; None where there is none."""
    if data.startswith(JPEG_START):
        import simplejpeg

        try:
            height, width, *_ = simplejpeg.decode_jpeg_header(data)
        except ValueError:
            return None
        return width, height
    if len(data) < AFTER_PNG_HEADER or not data.startswith(PNG_START):
        return None
    _, name, width, height, *_ = PNG_HEADER.unpack_from(data)
    return (width, height) if name == b"IHDR" and width and height else None


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


def png_text(path: Path | io.BytesIO) -> dict[str, str]:
    """The text chunks before a PNG's pixels, by keyword; empty where there is no such PNG.

    Args:
        path: a file, or its bytes.
    """
    try:
        with Image.open(path, formats=["PNG"]) as image:
            notes = image.info.items()
            return {str(keyword): text for keyword, text in notes if isinstance(text, str)}
    except UNREADABLE:
        return {}


def png_is_intact(path: Path) -> bool:
    """Whether a file is a PNG from its header to its end mark, with the checksums of all chunks."""
    try:
        with Image.open(path, formats=["PNG"]) as image:
            image.verify()
    except (*UNREADABLE, struct.error):
        return False
    return True


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


def file_bytes(path: Path) -> bytes:
    """A picture file's bytes, if they are not too many."""
    try:
        return read_regular_file(path, MAX_FILE_BYTES)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _check_header(data: bytes, what: str) -> None:
    """Check the stated size of a picture before anything is decoded."""
    size = stored_size(data)
    if size is None:
        raise UserError(f"{what} is cut short or no JPEG or PNG ({len(data)} bytes): copy it again")
    check_pixels(*size, what)


def check_pixels(width: int, height: int, what: str) -> None:
    """Raises `UserError` for a picture that is too large to be decoded."""
    if width * height > MAX_PIXELS:
        raise UserError(
            f"{what} has {width}x{height} pixels, more than {MAX_PIXELS}: make it smaller"
        )


def _decode_jpeg(what: str, data: bytes) -> Array:
    import simplejpeg  # here, so that all but JPEG works without it

    try:
        picture: Array = simplejpeg.decode_jpeg(data, "RGB")  # raises for libjpeg's warnings, too
    except ValueError as error:
        raise UserError(
            f"{what} is cut short or a damaged picture ({error}): copy it again"
        ) from None
    return picture


def _decode_png(what: str, data: bytes, flags: int) -> Array:
    # OpenCV takes the memory that a chunk's length states before it reads the chunk.
    has_all_chunks = _has_all_chunks(data)
    try:
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if has_all_chunks else None
    except cv2.error as error:  # a limit of its own, such as OPENCV_IO_MAX_IMAGE_PIXELS
        raise UserError(f"{what} cannot be decoded: OpenCV says {error.err}") from None
    if picture is None:
        raise UserError(f"{what} is cut short or a damaged picture: copy it again")
    return picture


def _has_all_chunks(data: bytes) -> bool:
    """Whether a PNG holds every chunk whole, to its end mark."""
    start = len(PNG_START)
    while start + PNG_CHUNK.size <= len(data):
        length, name = PNG_CHUNK.unpack_from(data, start)
        start += length + PNG_AROUND_CHUNK
        if name == b"IEND":
            return start <= len(data)
    return False


def _encode(suffix: str, pixels: Array, options: list[int]) -> bytes:
    """Encode a picture. Raises `ValueError` for pixels that the format cannot hold."""
    stored = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR) if pixels.ndim == 3 else pixels
    done, data = cv2.imencode(suffix, stored, options)
    if not done:
        raise ValueError(f"no {suffix} of {pixels.dtype} {list(pixels.shape)} could be encoded")
    return data.tobytes()
