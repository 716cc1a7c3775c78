"""Lists and tables in text files: read whole, as UTF-8, with every fault named by its line."""

import codecs
from pathlib import Path

from zoerefine.errors import UserError

MAX_BYTES = 2**28  # of a list; a line of 100 bytes a frame makes 2.7 million frames


def read_text(path: Path) -> str:
    """A UTF-8 file's text, without the byte-order mark that it may begin with.

    Raises `UserError` for a file that is too large, in another encoding, or with zero bytes.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UserError(f"{path} has {size} bytes, more than {MAX_BYTES}: split the data set")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{path} line 1: the file is UTF-16; save it as UTF-8")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise UserError(
            f"{path} line {line}: byte {byte:#x} is not UTF-8; save it as UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path} line {line} has a zero byte: save the file as UTF-8 text")
    return text.removeprefix("\ufeff")
