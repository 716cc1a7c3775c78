"""Whether a lock file, and settings beside it, fix a job's packages without other files.

Only what surely leads to no other file of the commit counts as such. A form that is not known here
is taken for a reference: the environment is then made for each commit, and is never a wrong one.
"""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Servers and absolute paths are not the commit's. A variable may be: uv knows ${PROJECT_ROOT}.
SERVER = r"(?:git\+)?(?:https?|ssh)://\S+"
ELSEWHERE = re.compile(rf"{SERVER}|(?:file://)?/[^\s$]*")
NAME = r"[A-Za-z0-9][\w.-]* ?(?:\[[\w ,.-]*\] ?)?"
VERSION = r"(?:===?|~=|!=|<=?|>=?) ?[\w.*+!-]+"
REQUIREMENT = re.compile(
    rf"(?P<what>{NAME}(?:{VERSION}(?: ?, ?{VERSION})*)?|(?:{NAME}@ ?)?{SERVER})"
    r"(?: ?;.*|(?: --hash[= ]\S+)*)"
)
OPTION = (
    rf"(?:--index-url|--extra-index-url|--find-links|-i|-f)[= ](?:{ELSEWHERE.pattern})"
    r"|(?:--only-binary|--no-binary|--trusted-host)[= ][\w.:,\[\]-]+"
    r"|--no-index|--pre|--prefer-binary|--require-hashes"
)
OPTIONS = re.compile(rf"(?:{OPTION})(?: (?:{OPTION}))*")
COMMENT = re.compile(r"(?:^|\s)#.*$")
# Settings of uv that say where packages are.
PLACES = {"url", "index-url", "extra-index-url", "find-links", "path", "git"}


def stands_alone(file: Path) -> bool:
    """Whether no other file of the commit counts for what a file says."""
    text = file.read_bytes().decode(errors="replace")
    is_alone = TOML_FILES.get(file.name)
    if is_alone is None:
        return all(line_is_alone(line, file.parent) for line in requirement_lines(text))
    try:
        return all(is_alone(keys, value) for keys, value in texts_in(tomllib.loads(text)))
    except tomllib.TOMLDecodeError:
        return False


def requirement_lines(text: str) -> Iterator[str]:
    """The lines of a requirements file: without comments, continued ones as one, single spaces."""
    lines = "\n".join(COMMENT.sub("", line) for line in text.splitlines())
    for line in lines.replace("\\\n", " ").split("\n"):
        if words := line.split():
            yield " ".join(words)


def line_is_alone(line: str, folder: Path) -> bool:
    """Whether a line has options, or a requirement by name or URL, that need no file."""
    if OPTIONS.fullmatch(line):
        return True
    requirement = REQUIREMENT.fullmatch(line)
    # `tiny-1.0.zip` has the form of a name, and is installed where it is a file.
    return requirement is not None and not os.path.exists(folder / requirement["what"].strip())


def uv_lock_is_alone(keys: tuple[str, ...], value: str) -> bool:
    """Whether an entry of uv.lock is no package of the commit. Its own project is not installed."""
    if keys[:2] != ("package", "source"):
        return True
    if keys[2:] in (("virtual",), ("editable",), ("directory",)):
        return value == "."
    return keys[2:] == ("git",) or (keys[2:] in (("registry",), ("url",)) and is_elsewhere(value))


def pylock_is_alone(keys: tuple[str, ...], value: str) -> bool:
    """Whether an entry of pylock.toml is no package of the commit."""
    return keys[-1] != "path" and (keys[-1] != "url" or is_elsewhere(value))


def project_is_alone(keys: tuple[str, ...], value: str) -> bool:
    """Whether an entry of pyproject.toml is no setting of uv that leads to the commit's files."""
    return keys[:2] != ("tool", "uv") or uv_settings_are_alone(keys[2:], value)


def uv_settings_are_alone(keys: tuple[str, ...], value: str) -> bool:
    """Whether a setting of uv leads to no file of the commit: as a place, or by `name @ place`."""
    if PLACES.intersection(keys[-1:]):
        return is_elsewhere(value)
    return "@" not in value or REQUIREMENT.fullmatch(" ".join(value.split())) is not None


def is_elsewhere(address: str) -> bool:
    """Whether an address is a server's, or an absolute path."""
    return ELSEWHERE.fullmatch(address) is not None


def texts_in(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every string in a TOML document, and the keys that lead there; lists have none."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from texts_in(one, (*keys, name))
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one, keys)


TOML_FILES = {
    "uv.lock": uv_lock_is_alone,
    "pylock.toml": pylock_is_alone,
    "pyproject.toml": project_is_alone,
    "uv.toml": uv_settings_are_alone,
}
