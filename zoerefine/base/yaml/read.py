"""The one YAML reader: YAML 1.2's core schema, plain data only, with the line of every value.

In the core schema `on`, `off`, `yes` and `no` are words, `1e-4` is a number, `051` is 51, and
there are no dates. Merge keys (`<<`) are read as PyYAML reads them. Tags are refused, except those
of the core schema and `!!python/tuple`, which becomes a list. A document may not have keys twice,
nest deeply, or grow without bounds through aliases.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml import events

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import read_given_file
from zoerefine.base.run_dir import LARGEST_DOCUMENT

DEEPEST = 50  # levels of nesting
MOST_VALUES = 100_000  # in a document, with every alias expanded
FLAG_WORDS = {"on": True, "yes": True, "off": False, "no": False}  # texts in YAML 1.2
PREFIX = "tag:yaml.org,2002:"

EventLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where PyYAML has it


class Place(NamedTuple):
    """Where a value is written: its line, counted from 1, and a scalar's own characters."""

    line: int
    text: str | None = None


@dataclass(frozen=True)
class Document:
    """A YAML document as plain data.

    Attributes:
        tree: dictionaries, lists and scalars.
        places: where each value is, by its path: `TRAIN.LR`, `LOSS.TERMS.0.weight`, "" for all.
        name: the file, or what else the text came from.
        lines: the text.
    """

    tree: Any
    places: Mapping[str, Place]
    name: str = ""
    lines: tuple[str, ...] = ()

    def line(self, path: str) -> int:
        """The line of a value, or of what is nearest around it; 0 where none is known."""
        while path not in self.places and path:
            path = path.rpartition(".")[0]
        return self.places[path].line if path in self.places else 0

    def where(self, path: str) -> str:
        """`file:line` of a value, or the file alone."""
        line = self.line(path)
        return f"{self.name}:{line}" if line else self.name

    def quote(self, path: str) -> str:
        """The line of a value as it is written, shortened; empty where it is not known."""
        line = self.line(path)
        return f"`{self.lines[line - 1].strip()[:80]}`" if 0 < line <= len(self.lines) else ""

    def text(self, path: str) -> str | None:
        """A scalar's own characters."""
        place = self.places.get(path)
        return place.text if place else None


class YamlError(ValueError):
    """What is wrong with a YAML text, with the line."""


class DuplicateKey(YamlError):
    """A mapping has a key twice."""


def parse_yaml(text: str, name: str = "", has_switches: bool = False) -> Document:
    """Read one YAML document; an empty one is None. Raises `YamlError`.

    Args:
        has_switches: `no` is false and `on` is true, as for scripts that read it with PyYAML.
    """
    try:
        root = _compose(yaml.parse(text, EventLoader))
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError(" ".join(str(error).split())) from None
    if root is None:
        return Document(None, {}, name)
    builder = _Builder(has_switches)
    tree = builder.build(root, "", ())
    return Document(tree, builder.places, name, tuple(text.splitlines()))


def refuse_duplicate_keys(text: str, name: str | Path) -> None:
    """Raises `UserError` where a mapping of a JSON text has a key twice."""
    try:
        parse_yaml(text.replace("\t", " "))  # then JSON is YAML
    except DuplicateKey as error:
        raise UserError(f"config {name} is not valid: {error}") from None
    except YamlError:  # e.g. too long, which is no fault of a JSON file
        return


def load_yaml(text: str, has_switches: bool = False) -> Any:
    """The plain data of a YAML text, see `parse_yaml`. Raises `YamlError`."""
    return parse_yaml(text, has_switches=has_switches).tree


def read_yaml(path: str | Path) -> Document:
    """A YAML file that holds a mapping, or nothing. Raises `UserError`, naming the file."""
    try:
        text = read_given_file(path, LARGEST_DOCUMENT).decode()
    except FileNotFoundError:
        raise UserError(f"no config file {path}: give an existing YAML file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"config {path} cannot be read: {error}") from None
    return parse_mapping(text, path)


def parse_mapping(text: str, name: str | Path) -> Document:
    """A YAML text that holds a mapping, or nothing. Raises `UserError`, naming the file."""
    try:
        document = parse_yaml(text, str(name))
    except YamlError as error:
        raise UserError(f"config {name} is not valid YAML: {error}") from None
    if document.tree is None:
        return Document({}, document.places, document.name, document.lines)
    if not isinstance(document.tree, dict):
        kind = type(document.tree).__name__
        raise UserError(f"config {name} must be a mapping of keys, not a {kind}")
    return document


# From text to nodes. Every step is bounded, so no text can exhaust memory or the call stack.


@dataclass(slots=True)
class _Node:
    """A node of the document; `items` are a list's nodes or a mapping's key and value nodes."""

    kind: str  # scalar, list, mapping
    line: int
    tag: str | None
    text: str = ""
    plain: bool = False
    items: "list[_Node]" = field(default_factory=list)


def _compose(parsed: Iterator[events.Event]) -> _Node | None:
    """The nodes of a single document."""
    open_nodes: list[_Node] = []
    anchors: dict[str, _Node] = {}
    root: _Node | None = None
    for event in parsed:
        line = event.start_mark.line + 1 if event.start_mark else 0
        if not isinstance(event, events.NodeEvent):
            if isinstance(event, events.CollectionEndEvent):
                open_nodes.pop()
            elif isinstance(event, events.DocumentStartEvent) and root is not None:
                raise YamlError(f"line {line}: a second document begins here; only one is allowed")
            continue
        node = _node_of(event, line, anchors)
        if open_nodes:
            open_nodes[-1].items.append(node)
        else:
            root = node
        if isinstance(event, events.CollectionStartEvent):
            open_nodes.append(node)
            if len(open_nodes) > DEEPEST:
                raise YamlError(f"line {line}: nested more than {DEEPEST} levels deep")
    return root


def _node_of(event: events.NodeEvent, line: int, anchors: dict[str, _Node]) -> _Node:
    if isinstance(event, events.ScalarEvent):  # first, since most are
        plain = bool(event.implicit[0]) and event.tag is None
        node = _Node("scalar", line, event.tag, event.value, plain)
    elif isinstance(event, events.AliasEvent):
        if event.anchor not in anchors:
            raise YamlError(f"line {line}: no anchor &{event.anchor} before this alias")
        return anchors[event.anchor]
    else:
        assert isinstance(event, events.CollectionStartEvent)
        kind = "list" if isinstance(event, events.SequenceStartEvent) else "mapping"
        node = _Node(kind, line, event.tag)
    if event.anchor is not None:
        anchors[event.anchor] = node
    return node


class _Builder:
    """Builds plain data from nodes and notes the place of each value."""

    def __init__(self, has_switches: bool) -> None:
        self.has_switches = has_switches
        self.places: dict[str, Place] = {}
        self.count = 0

    def build(self, node: _Node, path: str, parents: tuple[int, ...]) -> Any:
        """The data of a node; `parents` are the nodes around it, so that no alias is endless."""
        self.count += 1
        if self.count > MOST_VALUES:
            raise YamlError(f"more than {MOST_VALUES} values with its aliases expanded")
        if id(node) in parents:
            raise YamlError(f"line {node.line}: an alias here contains itself")
        if len(parents) > DEEPEST:
            raise YamlError(f"line {node.line}: nested more than {DEEPEST} levels deep")
        text = node.text if node.kind == "scalar" else None
        self.places[path] = Place(node.line, text)
        if node.kind == "scalar":
            is_switch = self.has_switches and node.plain and node.text.lower() in FLAG_WORDS
            return FLAG_WORDS[node.text.lower()] if is_switch else scalar_value(node)
        inside = (*parents, id(node))
        if node.kind == "list":
            _refuse_tag(node, "seq", "python/tuple")
            items = enumerate(node.items)
            return [self.build(item, _join(path, index), inside) for index, item in items]
        _refuse_tag(node, "map")
        return self._mapping(node, path, inside)

    def _mapping(self, node: _Node, path: str, parents: tuple[int, ...]) -> dict[Any, Any]:
        pairs, merged = _pairs(node)
        found: dict[Any, Any] = {}
        for other in reversed(merged):  # the first one named counts most, and own keys above all
            found |= self.build(other, path, parents)
        for key_node, value_node in pairs:
            place = _join(path, key_node.text)
            found[scalar_value(key_node)] = self.build(value_node, place, parents)
        return found


def _pairs(node: _Node) -> "tuple[list[tuple[_Node, _Node]], list[_Node]]":
    """A mapping's keys and values, and the mappings that it merges; no key occurs twice."""
    pairs: list[tuple[_Node, _Node]] = []
    merged: list[_Node] = []
    lines: dict[Any, int] = {}
    for key, value in zip(node.items[::2], node.items[1::2], strict=True):
        if key.kind != "scalar":
            raise YamlError(f"line {key.line}: a key must be a single word or number")
        if key.plain and key.text == "<<":
            merged += value.items if value.kind == "list" else [value]
            continue
        name = scalar_value(key)
        if name in lines:
            raise DuplicateKey(
                f"key {key.text} occurs twice, in line {lines[name]} and in line {key.line}: "
                "keep one"
            )
        lines[name] = key.line
        pairs.append((key, value))
    for other in merged:
        if other.kind != "mapping":
            raise YamlError(f"line {other.line}: << takes a mapping or a list of mappings")
    return pairs, merged


def _join(path: str, word: Any) -> str:
    return f"{path}.{word}" if path else str(word)


def _refuse_tag(node: _Node, *allowed: str) -> None:
    if node.tag not in (None, "!", *(PREFIX + name for name in allowed)):
        shown = node.tag.replace(PREFIX, "!!") if node.tag else ""
        raise YamlError(f"line {node.line}: tag {shown} is not allowed; only plain data is")


# Scalars of the core schema (YAML 1.2.2, section 10.3.2).

INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
INFINITY = re.compile(r"([-+]?)\.(inf|Inf|INF)")
NULLS = ("", "~", "null", "Null", "NULL")
BOOLEANS = {word: word.lower() == "true" for word in
            ("true", "True", "TRUE", "false", "False", "FALSE")}  # fmt: skip
SHORT = 64  # characters of a scalar whose meaning is remembered
DIGITS = 4000  # of an integer; Python reads no more than 4300


def plain_value(text: str) -> Any:
    """What an unquoted scalar means."""
    return _short_value(text) if len(text) <= SHORT else _plain_value(text)


@lru_cache(maxsize=4096)  # the configs of many runs hold the same keys and values
def _short_value(text: str) -> Any:
    return _plain_value(text)


def _plain_value(text: str) -> Any:
    if text in NULLS:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    if INTEGER.fullmatch(text) and len(text) < DIGITS:
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    if found := INFINITY.fullmatch(text):
        return -math.inf if found[1] == "-" else math.inf
    return math.nan if text in (".nan", ".NaN", ".NAN") else text


CORE_TAGS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def scalar_value(node: _Node) -> Any:
    """What a scalar node means."""
    if node.plain:
        return plain_value(node.text)
    if node.tag in (None, "!", f"{PREFIX}str"):
        return node.text
    name = node.tag.removeprefix(PREFIX)
    value = plain_value(node.text)
    _refuse_tag(node, *CORE_TAGS)
    if not CORE_TAGS[name](value):
        raise YamlError(f"line {node.line}: {node.text!r} is not a !!{name}")
    return float(value) if name == "float" else value
