"""Checks the fields of a manifest, which anybody may have written: each is of its type."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from zoerefine.base.errors import UserError
from zoerefine.base.messages import visible

MAX_TEXT = 80  # characters of a manifest's text that a message repeats


class Check(NamedTuple):
    """What a value must be: in words, and as a function."""

    words: str
    holds: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    """Text that a terminal shows: without escapes, line breaks and halves of characters."""
    return isinstance(value, str) and not any(
        unicodedata.category(letter) in ("Cc", "Cs") for letter in value
    )


def list_of(check: Check) -> Check:
    """A list whose items all pass."""
    return Check(
        f"a list, each item {check.words}",
        lambda value: isinstance(value, list) and all(map(check.holds, value)),
    )


def map_of(check: Check) -> Check:
    """A JSON object whose values all pass."""
    return Check(
        f"an object, each value {check.words}",
        lambda value: (
            isinstance(value, dict)
            and all(map(TEXT.holds, value))
            and all(map(check.holds, value.values()))
        ),
    )


def texts(*names: str) -> Check:
    """A JSON object with texts of these names."""
    return Check(
        f"an object with the texts {' and '.join(map(repr, names))}",
        lambda value: (
            isinstance(value, dict) and all(TEXT.holds(value.get(name)) for name in names)
        ),
    )


TEXT = Check("a text without control characters", _is_text)
NUMBER = Check(
    "a number", lambda one: isinstance(one, float) or (type(one) is int and abs(one) < 2**63)
)
COUNT = Check("a whole number of 1 or more", lambda value: type(value) is int and 0 < value < 2**31)
DEVICE = Check(
    '"cpu" or "cuda"',
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"cpu|cuda(:\d{1,3})?", value)),
)
OUTPUT = texts("type", "meaning")
SOURCE = texts("name", "digest")
CHOICE = Check(
    'an object with the text "processor" and the numbers "latency_ms"',
    lambda value: (
        isinstance(value, dict)
        and TEXT.holds(value.get("processor"))
        and map_of(NUMBER).holds(value.get("latency_ms"))
    ),
)

# What loading uses. The rest is used where it is shown.
NEEDED = {
    "engine": TEXT,
    "precision": TEXT,
    "device": DEVICE,
    "requirements": map_of(list_of(TEXT)),
    "batches": list_of(COUNT),
    "outputs": map_of(OUTPUT),
}
ORIGIN = {
    **dict.fromkeys(("zoerefine", "torch", "commit", "dirty_digest", "run", "config_digest"), TEXT),
    **dict.fromkeys(("weights", "data", "pseudo_label", "processor", "gpu", "compared"), TEXT),
    "metrics": map_of(NUMBER),
    "inputs": map_of(TEXT),
    "pseudo": SOURCE,
    "farthest_m": NUMBER,
    "max_abs_err_m": NUMBER,
    "mean_rel_err": NUMBER,
    "frames": COUNT,
}
TIMED = {"latency_ms": NUMBER, "eager_ms": NUMBER, "height": COUNT, "width": COUNT}
FLAG = Check("true or false", lambda value: isinstance(value, bool))
OPTIONAL = {
    "takes_points": FLAG,
    "pseudo_far_m": NUMBER,
    "pseudo_metrics": map_of(NUMBER),
    "training_scenes": map_of(TEXT),
    "started_from_others": FLAG,
    "warnings": list_of(TEXT),
    "choice": CHOICE,
    "mean_spread_err": NUMBER,
}

FIELDS = NEEDED | ORIGIN | TIMED | OPTIONAL


def plain(value: Any) -> str:
    """A value from a manifest for a message: cut, with control characters as escapes."""
    return visible(str(value)[:MAX_TEXT])


def check_fields(manifest: Any, path: str | Path) -> dict[str, Any]:
    """The manifest, once the fields that it has are of their types and it has those for loading.

    Raises `UserError` with the first field that does not fit.
    """
    if not isinstance(manifest, dict):
        raise UserError(f"{path} is a damaged engine bundle: its manifest is not a JSON object")
    present = [name for name in FIELDS if name in manifest]
    require_fields(
        manifest, [*NEEDED, *(TIMED if "latency_ms" in manifest else ()), *present], path
    )
    return manifest


def require_fields(manifest: dict[str, Any], names: Iterable[str], path: str | Path) -> None:
    """Raises `UserError` for a field that is absent, or not of its type."""
    for name in names:
        if name not in manifest:
            raise _wrong(name, "is absent", path)
        if not FIELDS[name].holds(manifest[name]):
            raise _wrong(name, f"is not {FIELDS[name].words}", path)


def _wrong(name: str, fault: str, path: str | Path) -> UserError:
    return UserError(
        f"{path} is a damaged engine bundle: the field {name!r} of its manifest {fault}: export it "
        "again"
    )
