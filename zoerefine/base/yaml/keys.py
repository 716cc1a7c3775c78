"""Nested mappings as one level: `{"TRAIN": {"LR": 1}}` is `{"TRAIN.LR": 1}`."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from zoerefine.base.errors import UserError


def flatten(
    tree: Mapping[str, Any], joint: str = ".", prefix: str = "", keeps_empty: bool = False
) -> dict[str, Any]:
    """The leaves of a tree by their path. A list is a leaf; an empty mapping has no leaves.

    Args:
        keeps_empty: an empty mapping is a leaf: `optimizer: {adam: {}}` names an optimizer.
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{joint}{key}" if prefix else str(key)
        if isinstance(value, Mapping) and (value or not keeps_empty):
            flat |= flatten(value, joint, path, keeps_empty)
        else:
            flat[path] = value
    return flat


def paired(words: Sequence[str]) -> list[tuple[str, str]]:
    """KEY VALUE words as pairs.

    Raises `UserError` for a key without a value, and for one that holds `=`: two words `a=1 b=2`
    would be one pair.
    """
    for word in words[::2]:
        if "=" in word:
            raise UserError(f"overrides come as KEY VALUE pairs: write {word.replace('=', ' ', 1)} "
                            f"in the place of {word}")  # fmt: skip
    if len(words) % 2:
        raise UserError(f"overrides come as KEY VALUE pairs; {words[-1]!r} has no value")
    return list(zip(words[::2], words[1::2], strict=True))


def with_facts(settings: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a config with facts about it; a setting named as one is `NAME (config)`."""
    return {f"{k} (config)" if k in facts else k: v for k, v in settings.items()} | dict(facts)


def texts_in(tree: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The texts in a tree, each with the keys that lead to it; places in lists are no keys."""
    if isinstance(tree, str):
        yield keys, tree
    elif isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from texts_in(value, (*keys, str(name)))
    elif isinstance(tree, list):
        for value in tree:
            yield from texts_in(value, keys)


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a tree in which each value that is no mapping or list, and each key, is changed."""
    if isinstance(tree, Mapping):
        return {change(key): mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [mapped(value, change) for value in tree]
    return change(tree)


Tree = TypeVar("Tree", bound=Mapping[str, Any])


def own_keys(tree: Any, key: str) -> list[Any]:
    """The keys on the way to a value: the number 0 for `0` where a mapping has such keys."""
    keys: list[Any] = []
    for word in key.split("."):
        has_numbers = isinstance(tree, Mapping) and any(type(one) is int for one in tree)
        is_number = has_numbers and word not in tree and word.isdecimal()
        keys.append(int(word) if is_number else word)
        tree = tree.get(keys[-1]) if isinstance(tree, Mapping) else None
    return keys


def has_key(tree: Any, key: str) -> bool:
    """Whether a key leads through mappings to a value."""
    for word in own_keys(tree, key):
        if not (isinstance(tree, Mapping) and word in tree):
            return False
        tree = tree[word]
    return True


def value_at(tree: Mapping[str, Any], key: str) -> Any:
    """A tree's value by its key; None where there is none or a list is too short."""
    node: Any = tree
    for word in own_keys(tree, key):
        try:
            node = node[int(word)] if isinstance(node, list) else node[word]
        except (IndexError, KeyError, ValueError, TypeError):
            return None
    return node


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two trees as one: the second one's values replace those of the first."""
    both = {k: merged(first[k], v) for k, v in second.items()
            if isinstance(v, Mapping) and isinstance(first.get(k), Mapping)}  # fmt: skip
    return {**first, **second, **both}


def nested(words: Iterable[str], value: Any) -> Any:
    """A value below some keys, the outer one first."""
    for word in reversed([*words]):
        value = {word: value}
    return value


def set_value(tree: Mapping[str, Any], key: str, value: Any) -> None:
    """Set a tree's value by its key."""
    *path, last = key.split(".")
    node: Any = tree
    for word in path:
        node = node[int(word)] if isinstance(node, list) else node[word]
    if isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value


def with_values(tree: Tree, values: Mapping[str, Any]) -> Tree:
    """A copy of a tree with `KEY.PATH: value` set."""
    changed = copy.deepcopy(tree)
    for key, value in values.items():
        set_value(changed, key, copy.deepcopy(value))
    return changed
