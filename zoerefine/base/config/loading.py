"""From a YAML file and KEY VALUE words to a checked, frozen configuration, and back to a file.

YACS supplies the tree (`cfg.TRAIN.LR`) and the command-line convention (`TRAIN.LR 3e-4`). Merging
and dumping are our own: YACS's printed form does not load back to the same values, and its
merge refuses `LR: 1` for a float.
"""

import copy
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from yacs.config import CfgNode

from zoerefine.base.config.paths import config_file, resolve_path
from zoerefine.base.config.schema import GROUPS, KEYS, SEARCH, Config, Key, check_combinations
from zoerefine.base.config.searched_keys import read_search
from zoerefine.base.config.value_types import (
    ListOf,
    OpenMapping,
    Text,
    WrongValue,
    shown,
    without_passwords,
)
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_text
from zoerefine.base.yaml.keys import nested, paired, set_value, value_at
from zoerefine.base.yaml.read import Document, Place, YamlError, parse_yaml, read_yaml
from zoerefine.base.yaml.write import dump_yaml

COMMAND_LINE = "command line"
T = TypeVar("T")
Source = str | Path | Mapping[str, Any] | Document | None  # None: the defaults
Overrides = Sequence[str] | Mapping[str, Any]


@dataclass(frozen=True)
class Resolved:
    """A configuration, and where each value that is not a default is written: `file:line`."""

    cfg: Config
    origins: dict[str, str] = field(default_factory=dict)


def defaults() -> Config:
    """A fresh tree with every key at its default."""
    tree: dict[str, Any] = {}
    for key in KEYS.values():
        group, _, name = key.name.rpartition(".")
        node = tree.setdefault(group, {}) if group else tree
        node[name] = copy.deepcopy(key.default)
    return CfgNode(tree | {SEARCH: {}})


def load_config(source: Source, overrides: Overrides = ()) -> Config:
    """The defaults, then a YAML file or a mapping, then the overrides; frozen, paths absolute.

    Args:
        source: a file, an example (`"demo"`), or a tree such as `{"TRAIN": {"LR": 3e-4}}`.
        overrides: words of a command line, `["TRAIN.LR", "3e-4"]`, or `{"TRAIN.LR": 3e-4}`.

    Raises `UserError` for a missing file, invalid YAML, an unknown key, or a value or a combination
    of values that is not allowed, with the key's path and where it is written.
    """
    return resolve_config(source, overrides).cfg


def resolve_config(source: Source, overrides: Overrides = ()) -> Resolved:
    """As `load_config`, with the origin of each value."""
    found = Resolved(defaults())
    if isinstance(source, Mapping):
        _merge(found, Document(source, {}, "config"))
    elif isinstance(source, Document):
        _merge(found, source)
    elif source is not None:
        _merge(found, read_yaml(config_file(source)))
    for document in _documents(overrides):
        _merge(found, document)
    for key in KEYS.values():
        value = value_at(found.cfg, key.name)
        if key.is_path and value:
            set_value(found.cfg, key.name, str(resolve_path(value)))
    try:
        check_combinations(found.cfg)
    except UserError as error:  # its keys are named in its sentence
        places = [f"{key}: {place}" for key, place in found.origins.items() if key in str(error)]
        raise UserError(f"{error} ({', '.join(places)})" if places else str(error)) from None
    found.cfg.freeze()
    return found


def check_value(name: str, value: Any, option: str = "") -> Any:
    """A value of a key, as its type, for functions and options that take it.

    Raises `UserError`, naming the option or else the key, where the key does not allow it.
    """
    try:
        return KEYS[name].type.read(value, option or name)
    except WrongValue as wrong:
        raise UserError(str(wrong)) from None


def merge(cfg: Config, tree: Mapping[str, Any], source: str) -> None:
    """Set the values of `tree` in `cfg`, each checked. Raises `UserError`, naming the source."""
    _merge(Resolved(cfg), Document(tree, {}, source))


def _documents(words: Overrides) -> list[Document]:
    """The trees that overrides stand for; the values of words are read as YAML."""
    if isinstance(words, Mapping):
        return [
            Document(nested(key.split("."), value), {}, "overrides") for key, value in words.items()
        ]
    return [_document(key, text) for key, text in paired(words)]


def _document(key: str, text: str) -> Document:
    try:
        read = parse_yaml(text)
    except YamlError as error:
        if key not in KEYS or not isinstance(KEYS[key].type, Text):
            raise UserError(
                f"{COMMAND_LINE}: {key} {shown(text)} is not valid YAML: {error}"
            ) from None
        read = Document(text, {})  # a path or a name may hold anything
    places = {
        f"{key}.{path}" if path else key: Place(0, place.text)
        for path, place in read.places.items()
    }
    return Document(nested(key.split("."), read.tree), places, COMMAND_LINE)


def _merge(found: Resolved, document: Document, tree: Any = None, prefix: str = "") -> None:
    for word, value in (document.tree if tree is None else tree).items():
        name = f"{prefix}{word}"
        where = document.where(name)
        if "." in str(word):  # two spellings of one key could disagree
            raise UserError(f"{where}: write {name} as nested keys, one level for each dot")
        if name in GROUPS:
            if not isinstance(value, Mapping):
                raise UserError(f"{where}: {name} is a group of keys, got {shown(value)}")
            _merge(found, document, value, f"{name}.")
        elif name in KEYS:
            _merge_value(found, document, KEYS[name], value)
            found.origins[name] = where
        elif name == SEARCH:
            search = _explained(document, partial(read_search, value, document.text))
            found.cfg[SEARCH] = CfgNode(search)
            found.origins[name] = where
        else:
            raise UserError(f"{where}: {unknown_key(name)}")


def _merge_value(found: Resolved, document: Document, key: Key, value: Any) -> None:
    if isinstance(value, list) and not isinstance(key.type, ListOf | OpenMapping):
        got = without_passwords(document.quote(key.name)) or shown(value)
        raise UserError(
            f"{document.where(key.name)}: {key.name} takes one value, got {got}; a list of values "
            "to try belongs under SEARCH, and `zoerefine search` tries them"
        )
    value = key.type.as_written(_of_yaml(value), key.name, document.text)
    typed = _explained(document, lambda: key.type.read(value, key.name))
    if isinstance(key.type, OpenMapping):
        typed = CfgNode(dict(value_at(found.cfg, key.name)) | typed)
    set_value(found.cfg, key.name, typed)


def _of_yaml(value: Any) -> Any:
    """A path or a number of NumPy, as a program may give it, as YAML has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Real) and not isinstance(value, int | float):
        return int(value) if isinstance(value, Integral) else float(value)
    return value


def _explained(document: Document, read: Callable[[], T]) -> T:
    try:
        return read()
    except WrongValue as wrong:
        raise UserError(f"{document.where(wrong.key)}: {wrong}") from None


def unknown_key(name: str) -> str:
    """Why there is no such key, and which one may be meant."""
    group, _, word = name.rpartition(".")
    elsewhere = [one for one in KEYS if one.rpartition(".")[2] == word]
    if elsewhere and not group:
        return f"no config key {name}; did you mean {' or '.join(elsewhere)}?"
    known = [one for one in [*KEYS, *GROUPS, SEARCH] if one.rpartition(".")[0] == group]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
    return f"no config key {name}; {hint}"


def to_dict(cfg: Config) -> dict[str, Any]:
    """The tree as plain dictionaries, lists and scalars."""
    return {k: to_dict(v) if isinstance(v, CfgNode) else v for k, v in cfg.items()}


def save_config(cfg: Config, path: str | Path) -> None:
    """Write the fully resolved tree so that `load_config` gives back the very same values."""
    try:
        text = dump_yaml(to_dict(cfg))
    except ValueError as error:
        raise UserError(f"the configuration cannot be written to {path}: {error}") from None
    write_text(path, text)


def training_size(cfg: Config) -> tuple[int, int]:
    """Height and width of the pictures that the refiner is given in training."""
    return cfg.LOADER.HEIGHT or cfg.CACHE.HEIGHT, cfg.LOADER.WIDTH or cfg.CACHE.WIDTH
