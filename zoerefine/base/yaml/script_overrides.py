"""Overrides: KEY VALUE words merged into a config file, in which only the values they name change.

The file's other text stays as it is: comments, order, tags such as `!!python/tuple`. A value is
replaced by its new text between the places where the YAML parser saw it begin and end. The result
is read again and compared with what it must mean, so a merge is exact or refused.
"""

import copy
import difflib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml import events

from zoerefine.base.errors import UserError
from zoerefine.base.yaml.equal_values import same_data
from zoerefine.base.yaml.keys import flatten, has_key, nested, own_keys, value_at
from zoerefine.base.yaml.read import FLAG_WORDS, YamlError, load_yaml, parse_mapping
from zoerefine.base.yaml.write import dump_value

YAML_SUFFIXES = (".yaml", ".yml")
ENDS = (events.MappingEndEvent, events.SequenceEndEvent)
NODES = (events.NodeEvent, *ENDS)
NULL_WORDS = ("null", "~")
LEADING_ZERO = re.compile(r"[-+]?0\d")
NEW_KEY = "+"  # before a key that the config does not have yet


def merge_overrides(path: Path, data: bytes, overrides: Sequence[str]) -> bytes:
    """A YAML or JSON config with KEY VALUE words merged into it.

    Args:
        path: the config's name, for its kind and for messages.
        overrides: `A.B value` replaces a value that the config has, `+A.B value` may add one.

    Raises `UserError` where the config is of another kind or has no such key, or the key's value
    cannot be replaced alone, since other keys share it.
    """
    if not overrides:
        return data
    if path.suffix not in (*YAML_SUFFIXES, ".json"):
        raise UserError(
            f"overrides cannot be merged into {path}, which is neither YAML nor JSON: give "
            "--overrides arguments"
        )
    is_json = path.suffix == ".json"
    try:
        text = data.decode("utf-8")
        tree = json.loads(text) if is_json else parse_mapping(text, path).tree
        given = tree if is_json else load_yaml(text, has_switches=True)
    except ValueError as error:
        raise UserError(f"config {path} cannot be read: {error}") from None
    if not isinstance(tree, dict):
        raise UserError(f"config {path} must be a mapping of keys")
    for word, value_text in zip(overrides[::2], overrides[1::2], strict=True):
        key = word.removeprefix(NEW_KEY)
        keys, value = own_keys(tree, key), value_like(value_at(given or {}, key), value_text)
        if not word.startswith(NEW_KEY):
            check_key(path, tree, word)
        tree = with_value(path, tree, keys, value)
        if not is_json:
            text = edited(path, text, tree, keys, value)
    return (json.dumps(tree, indent=2) + "\n" if is_json else text).encode()


def read_value(text: str) -> Any:
    """The value of an override: YAML of one line, or else the text itself.

    A word is no document: `#ff0000` is not an empty one, and `-` begins no list.
    """
    try:
        value = load_yaml(text)
    except YamlError:
        return text
    is_comment = value is None and text.strip().lower() not in NULL_WORDS
    return text if is_comment or (isinstance(value, list) and text[:1] != "[") else value


def value_like(present: Any, text: str) -> Any:
    """The value of an override where a config has `present`, in which switches are true or false.

    A switch stays one: `no` is false. A text that had to be quoted, such as "007", "1.10" and "no",
    stays a text; beside any text so do `007` and `note: x`.
    """
    if isinstance(present, bool) and text.lower() in FLAG_WORDS:
        return FLAG_WORDS[text.lower()]
    value = read_value(text)
    if isinstance(present, str):
        is_word = present.lower() in FLAG_WORDS
        was_quoted = is_word or (present and not isinstance(read_value(present), str))
        is_mapping = isinstance(value, dict) and text[:1] != "{"
        if was_quoted or is_mapping or LEADING_ZERO.match(text):
            return text
    return value


def check_key(path: Path, tree: dict[Any, Any], key: str) -> None:
    """Raises `UserError`, with the nearest name, where a config does not have a key."""
    if not has_key(tree, key):
        known = [str(name) for name in flatten(tree)]
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known[:12])}"
        raise UserError(
            f"config {path} has no key {key}, and the job gets no KEY VALUE words; {hint} "
            f"(+{key} adds a key)"
        )


def with_value(path: Path, tree: dict[Any, Any], keys: Sequence[Any], value: Any) -> dict[Any, Any]:
    """A copy of a tree in which a key has a value. Groups on the way are added."""
    result = copy.deepcopy(tree)
    node = result
    for part in keys[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise UserError(
                f"config {path}: {part} of {'.'.join(map(str, keys))} is not a group of keys"
            )
    node[keys[-1]] = value
    return result


def edited(path: Path, text: str, tree: dict[Any, Any], keys: Sequence[Any], value: Any) -> str:
    """The text with one value set. Raises `UserError` where it does not mean `tree` then."""
    with suppress(ValueError):  # of damaged YAML, or of a value that YAML cannot keep
        result = edit(text, keys, value)
        if same_data(load_yaml(result), tree):
            return result
    raise UserError(
        f"config {path}: {'.'.join(map(str, keys))} cannot be set without changing other keys (an "
        "anchor, an alias or an unusual form): write it in the file, or give "
        "--overrides arguments"
    )


@dataclass
class Node:
    """Where a value stands in a text: from `start` to `end`, its tag and anchor included.

    Attributes:
        kind: mapping, list or scalar.
        flow: whether it is written in brackets.
        column: of its first key.
        items: a mapping's values by key, each with the place where its key ends.
    """

    kind: str
    start: int
    end: int
    flow: bool = False
    first: int = 0
    column: int = 0
    items: "dict[str, tuple[int, Node]]" = field(default_factory=dict)


def edit(text: str, keys: Sequence[Any], value: Any) -> str:
    """Replace or add a value in a YAML text that holds a mapping or nothing."""
    node = locate(text)
    if node is None:
        body = text if not text or text.endswith("\n") else f"{text}\n"
        return f"{body}{keys[0]}: {dump_value(nested(keys[1:], value))}\n"
    for depth, key in enumerate(keys):
        found = node.items.get(str(key))
        last = depth == len(keys) - 1
        if found is None:
            return added(text, node, key, dumped(nested(keys[depth + 1 :], value), node))
        key_end, child = found
        if last or child.kind != "mapping":
            inner = dumped(nested(keys[depth + 1 :], value), node)
            return f"{text[:key_end]}: {inner}{text[child.end :]}"
        node = child
    raise AssertionError("a key has at least one part")


def dumped(value: Any, parent: Node) -> str:
    """A value as it is written in a mapping; in brackets a comma would end a text."""
    return dump_value([value])[1:-1] if parent.flow else dump_value(value)


def added(text: str, node: Node, key: Any, value: str) -> str:
    """The text with one more key at the start of a mapping."""
    entry = f"{dumped(key, node)}: {value}"
    if node.flow:
        inside = node.first
        return f"{text[:inside]}{entry}{', ' if node.items else ''}{text[inside:]}"
    return f"{text[: node.first]}{entry}\n{' ' * node.column}{text[node.first :]}"


def locate(text: str) -> Node | None:
    """The place of every value of a document; None where it is empty."""
    parsed = (event for event in yaml.parse(text, yaml.SafeLoader) if isinstance(event, NODES))
    first = next(parsed, None)
    return None if first is None else read_node(text, first, parsed)


def read_node(text: str, event: events.Event, rest: Iterator[events.Event]) -> Node:
    """The node that begins with an event."""
    assert event.start_mark and event.end_mark
    start, end = event.start_mark.index, event.end_mark.index
    if isinstance(event, events.ScalarEvent | events.AliasEvent):
        return Node("scalar", start, start + len(text[start:end].rstrip()))
    flow = bool(getattr(event, "flow_style", False))
    kind = "mapping" if isinstance(event, events.MappingStartEvent) else "list"
    node = Node(kind, start, end, flow, first=end)
    while not isinstance(event := next(rest), ENDS):
        assert event.start_mark
        if not flow and not node.items:
            node.first, node.column = event.start_mark.index, event.start_mark.column
        key_end, child = 0, read_node(text, event, rest)
        if kind == "mapping":
            key, key_end = getattr(event, "value", ""), child.end
            child = read_node(text, next(rest), rest)
            node.items[key] = (key_end, child)
        node.end = max(node.end, child.end)
    if flow:
        assert event.end_mark
        node.end = event.end_mark.index
    return node
