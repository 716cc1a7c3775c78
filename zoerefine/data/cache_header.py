"""The header of a packed cache, cache.json. It holds a digest of itself and of frames.npy."""

import json
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.files import digest_file, digest_json, write_json

SCHEMA = 4
OWN_DIGEST = "header_sha256"
TABLE_DIGEST = "frames_sha256"


def write_header(folder: Path, header: dict[str, Any]) -> None:
    """Write cache.json beside a frames.npy that is complete and on the disk."""
    header = {"schema": SCHEMA} | header | {TABLE_DIGEST: digest_file(folder / "frames.npy")}
    write_json(folder / "cache.json", header | {OWN_DIGEST: digest_json(header)})


def read_header(folder: Path) -> dict[str, Any]:
    """The contents of cache.json.

    Raises `UserError` where it is missing, damaged in any value, or of another version.
    """
    try:
        header = json.loads((folder / "cache.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is no packed cache: make one with zoerefine data pack") from None
    except OSError as error:
        raise UserError(f"{folder}/cache.json cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{folder}/cache.json is damaged ({error}): delete {folder}") from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise UserError(f"{folder} is of another version (schema {SCHEMA} is needed): delete it")
    stored = header.pop(OWN_DIGEST, "")
    if digest_json(header) != stored:
        raise UserError(f"{folder}/cache.json differs from its own digest: delete {folder}")
    return header
