"""Which files are our own: a result never replaces a file of another program.

Nothing that zoerefine has not written itself is overwritten, so each kind of file carries a mark:
PNG a text chunk, JSON a key, PLY and JPEG a comment, PDF and SVG their creator, MP4 an additional
box at its end, which players skip.
"""

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError

PNG_START = b"\x89PNG\r\n\x1a\n"
MADE_BY = "made by zoerefine"
PNG_MARKS = b"tEXtzoerefine-", b"iTXtzoerefine-", f"tEXtSoftware\0{MADE_BY}".encode()
PLY_MARK = b"\ncomment zoerefine-"
JSON_MARK = {"software": MADE_BY}
SEARCHED_BYTES = 2**13  # at each end of a file
# Keys of a result's JSON file before it had the mark; another program may use them, too.
KEYS_WITHOUT_MARK = (
    {"bundle", "commit", "outputs"},
    {"frames", "left_out", "pseudo", "refined", "ratio"},
)
VIDEO_BOX = struct.pack(">I", 8 + len(MADE_BY)) + b"free" + MADE_BY.encode()


def is_ours(path: Path) -> bool:
    """Whether an existing file carries the mark of its kind. Where it was cut, this still works."""
    if path.suffix == ".json":
        return JSON_MARK.items() <= _json_object(path).items()
    with open(path, "rb") as file:
        beginning = file.read(SEARCHED_BYTES)
        if path.suffix == ".png":
            return beginning.startswith(PNG_START) and any(mark in beginning for mark in PNG_MARKS)
        if path.suffix == ".ply":
            return beginning.startswith(b"ply\n") and PLY_MARK in beginning
        file.seek(max(0, path.stat().st_size - SEARCHED_BYTES))
        return MADE_BY.encode() in beginning + file.read()


def _json_object(path: Path) -> dict[str, Any]:
    """Empty for a file that holds none."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def refuse_foreign(paths: Iterable[Path], option: str) -> None:
    """Raises `UserError` for the first path that holds something zoerefine has not written."""
    for path in paths:
        if not path.is_symlink() and not path.exists():
            continue
        try:
            ours = path.is_file() and is_ours(path)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        if not ours:
            whose = "was not written by zoerefine"
            if path.suffix == ".json" and path.is_file():
                keys = _json_object(path).keys()
                if any(known <= keys for known in KEYS_WITHOUT_MARK):
                    whose = "was written by an earlier version of zoerefine or another program"
            raise UserError(f"{path} {whose} and would be overwritten: move it, or give "
                            f"another {option}")  # fmt: skip


def drawing_options(suffix: str) -> dict[str, Any]:
    """What matplotlib's `savefig` needs, to mark a drawing: .png, .jpg, .pdf or .svg."""
    if suffix == ".jpg":
        return {"pil_kwargs": {"comment": MADE_BY}}
    return {"metadata": {"Software" if suffix == ".png" else "Creator": MADE_BY}}
