"""Single values of a config by key path: `TRAIN.LR`, or `LOSS.TERMS.1.weight` inside a list."""

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

Tree = TypeVar("Tree", bound=Mapping[str, Any])


def value_at(tree: Mapping[str, Any], key: str) -> Any:
    """A tree's value by its key; None where there is none or a list is too short."""
    node: Any = tree
    for word in key.split("."):
        try:
            node = node[int(word)] if isinstance(node, list) else node[word]
        except (IndexError, KeyError, ValueError, TypeError):
            return None
    return node


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
