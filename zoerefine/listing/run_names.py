"""Finds the runs that a text names by NAME/ID, however the paths in it are written.

The text may be a config of any format, a command line or a damaged file, and names of runs may hold
almost any character. So the text is not parsed: known names are searched for, with a boundary
around them. To find a run that is not meant is harmless; to miss one is not.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

LATEST = "latest"  # our link to the run of a name that was started last
# A line that is continued, a character by its number, a control character, any other character.
ESCAPE = re.compile(
    r"\\(?:[ \t]*\n\s*|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([nrtbfv0])|(.))"
)
STANDS_STILL = re.compile(r"/(?:\.?/)+")  # a//b, a/./b


class RunNames:
    """The runs that are searched for, by the last two parts of their paths."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.ids: dict[str, set[str]] = {}
        for path in paths:
            name, run = key_of(path).split("/")
            self.ids.setdefault(name, {LATEST}).add(run)
        self.name_lengths = {len(name) for name in self.ids}
        self.id_lengths = {len(run) for runs in self.ids.values() for run in runs}

    def named_in(self, text: str, above: Iterable[tuple[str, int]] = ()) -> set[str]:
        """The keys, such as NAME/ID or NAME/latest, of the runs that a text names.

        Args:
            text: anything.
            above: for each folder where relative paths in the text may start, and that is in a
                folder NAME of runs: NAME, and how many levels below NAME it is.
        """
        found = set()
        for form in forms(text):
            found |= self._found_in(form)
            for name, levels in above:
                found |= self._found_in(resolved(with_name(form, name, levels)))
        return found

    def _found_in(self, text: str) -> set[str]:
        return {
            f"{name}/{run}"
            for before, after in pairwise(text.split("/"))
            for name in self._names_at_the_end(before)
            for run in self._ids_at_the_start(after)
            if run in self.ids[name]
        }

    def _names_at_the_end(self, part: str) -> Iterator[str]:
        for length in self.name_lengths:
            name, before = part[-length:], part[-length - 1 : -length]
            if name in self.ids and not is_word(before):
                yield name

    def _ids_at_the_start(self, part: str) -> Iterator[str]:
        """ID-run2 and ID-again1 are other runs than ID."""
        for length in self.id_lengths:
            after = part[length : length + 1]
            if len(part) >= length and not is_word(after) and after != "-":
                yield part[:length]


def key_of(path: str) -> str:
    """NAME/ID of the path of a run, as it is searched for."""
    return "/".join(map(squeezed, path.split("/")[-2:]))


def is_word(character: str) -> bool:
    """Whether a character goes on with a word; none does not."""
    return character.isalnum() or character == "_"


def forms(text: str) -> set[str]:
    """A text as it is written, and as its escapes and its paths with dots are read."""
    written = {squeezed(text), squeezed(unescaped(text))} if "\\" in text else {squeezed(text)}
    return written | set(map(resolved, written))


def squeezed(text: str) -> str:
    """A text with one space where several are: YAML breaks lines at spaces; and '' is one quote."""
    return " ".join(text.split()).replace("''", "'")


def unescaped(text: str) -> str:
    """A text with the escapes of JSON, YAML, TOML and shells replaced by what they stand for."""

    def character(found: re.Match[str]) -> str:
        *numbers, control, other = found.groups()
        number = next(filter(None, numbers), None)
        if number:
            return chr(min(int(number, 16), 0x10FFFF))
        return " " if control else other or ""

    plain = ESCAPE.sub(character, text)
    # JSON writes one character as two numbers.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def resolved(text: str) -> str:
    """A text whose paths have no a/./b and no a/x/../b."""
    found: list[str] = []
    for part in STANDS_STILL.sub("/", text).split("/"):
        if part == ".." and found and not found[-1].endswith("."):
            found.pop()
        else:
            found.append(part)
    return "/".join(found)


def with_name(text: str, name: str, levels: int) -> str:
    """A text whose relative paths, which start so many levels below a folder, name that folder."""
    if levels:
        return text.replace("../" * levels, f"{name}/")
    return re.sub(r"(?<![\w/])(?=[^\s/])", lambda _: f"{name}/", text)
