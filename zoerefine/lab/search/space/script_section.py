"""A search space as a user gives it: the section SEARCH of a config, a file of its own, or words.

The older form is a section HPO: a tree with `USE_HPO: true` and plain lists. The section is taken
out of the config, since the script does not know it. Which keys such a config has is here, too.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.config.schema import SEARCH
from zoerefine.base.config.searched_keys import SearchedKeys, read_search
from zoerefine.base.config.value_types import WrongValue, shown
from zoerefine.base.errors import UserError
from zoerefine.base.yaml.equal_values import same_data
from zoerefine.base.yaml.keys import merged, nested
from zoerefine.base.yaml.read import (
    Document,
    YamlError,
    load_yaml,
    parse_mapping,
    parse_yaml,
    plain_value,
    read_yaml,
)
from zoerefine.base.yaml.script_overrides import NEW_KEY, YAML_SUFFIXES, read_value, with_value
from zoerefine.base.yaml.write import dump_yaml
from zoerefine.lab.launch.included import Included
from zoerefine.lab.launch.job import NO_CONFIG, OPTIONS

OLDER, SWITCH = "HPO", "USE_HPO"


@dataclass(frozen=True)
class SpaceSource:
    """A SEARCH tree as it is written.

    Attributes:
        document: where it stands.
        prefix: the path of the tree there, with a last dot; empty where it is the whole document.
    """

    tree: Mapping[str, Any]
    document: Document
    prefix: str = ""

    def read(self, keys: SearchedKeys) -> dict[str, Any]:
        """The tree with every value as its key's type. Raises `UserError` with its place."""

        def here(place: str) -> str:
            return self.prefix + place.removeprefix(f"{SEARCH}.")

        try:
            return read_search(self.tree, lambda place: self.document.text(here(place)), keys)
        except WrongValue as wrong:
            raise UserError(f"{self.document.where(here(wrong.key))}: {wrong}") from None


def space_in_config(document: Document) -> SpaceSource | None:
    """The space that a script's config holds. Raises `UserError` where it holds two."""
    tree = document.tree
    older = older_section(tree)
    if SEARCH in tree and older is not None:
        raise UserError(f"{document.name} has both {SEARCH} and {OLDER}: keep one")
    if older is not None:
        return SpaceSource(from_older_form(older), document, f"{OLDER}.")
    if tree.get(SEARCH) is None:
        return None
    return SpaceSource(tree[SEARCH], document, f"{SEARCH}.")


def older_section(tree: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The section of the older form; None where there is none or it is switched off."""
    older = tree.get(OLDER)
    is_on = isinstance(older, Mapping) and switched_on(tree) and switched_on(older)
    return older if is_on else None


def switched_on(tree: Mapping[str, Any]) -> bool:
    """Whether a tree of the older form is not switched off."""
    return tree.get(SWITCH) is not False


def from_older_form(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A tree of the older form as SEARCH: without switches, and each single value as a list."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if key == SWITCH:
            continue
        if isinstance(value, Mapping):
            if switched_on(value) and (inside := from_older_form(value)):
                found[key] = inside
        else:
            found[key] = value if isinstance(value, list) else [value]
    return found


def without_space(document: Document) -> str:
    """A config's text without the sections that describe a search.

    Their lines are cut out, so that all others stay as they are written. Where the sections are
    not lines of their own, the config is written anew, without its comments.
    """
    sections = {SEARCH} | ({OLDER, SWITCH} if older_section(document.tree) is not None else set())
    rest = {key: value for key, value in document.tree.items() if key not in sections}
    if len(rest) == len(document.tree):
        return "".join(f"{line}\n" for line in document.lines)
    if document.name.endswith(".json"):
        return json.dumps(rest, indent=2) + "\n"
    kept, inside = [], False
    for line in document.lines:
        if line[:1] not in ("", " ", "\t", "#"):  # a top-level key
            inside = line.partition(":")[0].strip().strip("'\"") in sections
        if not inside or line.startswith("#"):  # a comment there may belong to the next key
            kept.append(line)
    text = "".join(f"{line}\n" for line in kept)
    try:
        exact = same_data(load_yaml(text) or {}, rest)
    except YamlError:  # e.g. an alias of something inside a section
        exact = False
    return text if exact else dump_yaml(rest)


def space_in_file(path: Path) -> SpaceSource:
    """A file with a SEARCH tree, under that name or by itself. Raises `UserError`."""
    document = read_yaml(path)
    return space_in_config(document) or SpaceSource(document.tree, document)


def combined(trees: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several SEARCH trees as one: a key of a later tree replaces that of an earlier one."""
    found: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            earlier = found.get(key)
            both = is_group(earlier) and is_group(value)
            found[key] = combined([earlier, value]) if both else value  # type: ignore[list-item]
    return found


def is_group(value: Any) -> bool:
    """Whether a value of a SEARCH tree holds keys, and is no range."""
    return isinstance(value, Mapping) and not {"low", "high"} <= set(value)


def searched_tree(
    config: Path,
    overrides_in: str,
    data: bytes,
    included: Included,
    search: Mapping[str, Any],
    words: Sequence[str] = (),
) -> dict[str, Any]:
    """The keys of a config, of the files that it includes and of KEY VALUE words.

    Where only the script knows its keys, each searched one is there without a value.
    """
    any_key = takes_any_key(config, overrides_in)
    own = read_config(config, data, any_key).tree
    tree = with_words(config, merged(included.tree or {}, own), words)
    is_known = not any_key and included.tree is not None
    return tree if is_known else with_options(tree, search)


def takes_any_key(config: Path, overrides_in: str) -> bool:
    """Whether only the script knows which keys there are."""
    return overrides_in in OPTIONS or config == NO_CONFIG


def with_words(file: Path, tree: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """A config's tree with the values of KEY VALUE words."""
    for key, text in zip(words[::2], words[1::2], strict=True):
        with suppress(UserError):  # LOSS.1.weight, which only the script can place
            keys = key.removeprefix(NEW_KEY).split(".")
            tree = with_value(file, tree, keys, read_value(text))
    return tree


def with_options(config: Mapping[str, Any], search: Mapping[str, Any]) -> dict[str, Any]:
    """A config's tree, and without a value every key of a SEARCH tree that it does not have."""
    tree = dict(config)
    for key, value in search.items():
        if is_group(value):
            inner = tree.get(key)
            tree[key] = with_options(inner if isinstance(inner, Mapping) else {}, value)
        else:
            tree.setdefault(key, None)
    return tree


def read_config(path: Path, data: bytes, any_key: bool = False) -> Document:
    """A script's config with the place of each value.

    Raises `UserError` for another format than YAML and JSON, unless the script takes any key.
    """
    is_known = path.suffix in (*YAML_SUFFIXES, ".json")
    if path == NO_CONFIG or (any_key and not is_known):
        return Document({}, {})
    if not is_known:
        raise UserError(f"config {path} is neither YAML nor JSON: its keys cannot be searched")
    if path.suffix == ".json":
        try:
            json.loads(data)
        except ValueError as error:
            raise UserError(f"config {path} is not valid JSON: {error}") from None
    return parse_mapping(data.decode(), path)  # JSON is YAML


# A search space in words: `--search KEY=LOW..HIGH [log | step S]` and `KEY=[A, B]`.

NUMBER = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
LEADING_ZEROS = re.compile(r"[\[,]\s*(0\d+)\s*(?=[,\]])")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
RANGE = re.compile(rf"({NUMBER})\s*\.\.(?!\.)\s*({NUMBER})(?:\s+(log)|\s+step\s+({NUMBER}))?")


def space_of_words(words: Sequence[str]) -> list[SpaceSource]:
    """The spaces of `KEY=LOW..HIGH [log | step S]` and `KEY=[A, B]`. Raises `UserError`."""
    keys = [word.partition("=")[0].strip() for word in words]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"--search: {key} is given twice: keep one")
        if inner := next((one for one in keys if one.startswith(f"{key}.")), ""):
            raise UserError(
                f"--search: {key} and {inner} cannot both be searched, since one is inside the "
                f"other; for a group of Hydra write --search 'choice=[A, B]' and, after --, "
                f"'{key}={{choice}}'"
            )
    return [space_of_word(word) for word in words]


def space_of_word(word: str) -> SpaceSource:
    """The space of one option --search."""
    key, equals, text = (part.strip() for part in word.partition("="))
    found = RANGE.fullmatch(text)
    if found:
        low, high, log, step = found.groups()
        value: Any = {"low": plain_value(low), "high": plain_value(high)}
        value |= {"log": True} if log else {"step": plain_value(step)} if step else {}
        if isinstance(value.get("step"), float):  # 0..1 step 0.1 is of fractions, as 0.0..1.0 is
            value = {name: float(number) for name, number in value.items()}
    else:
        try:
            value = parse_yaml(text).tree
        except YamlError:
            value = None
        if zeros := LEADING_ZEROS.search(QUOTED.sub("", text)):  # subjects, folds
            raise UserError(
                f"--search {shown(word)}: {zeros[1]} would be the number {int(zeros[1])}; write "
                f'"{zeros[1]}" for the word'
            )
    if not (key and equals and isinstance(value, list | dict)):
        raise UserError(
            f"--search {shown(word)} is neither KEY=LOW..HIGH, KEY=LOW..HIGH log, KEY=LOW..HIGH "
            "step S nor KEY=[A, B]"
        )
    tree = nested(key.split("."), value)
    return SpaceSource(tree, Document(tree, {}, "--search"))
