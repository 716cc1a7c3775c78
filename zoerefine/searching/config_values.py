"""Single values of a config by key path: `TRAIN.LR`, or `LOSS.TERMS.1.weight` inside a list."""

import copy
from collections.abc import Mapping
from typing import Any

from yacs.config import CfgNode

from zoerefine.config import Config


def value_at(cfg: Config, key: str) -> Any:
    """A config's value by its key; None where a list is too short."""
    node: Any = cfg
    for word in key.split("."):
        try:
            node = node[int(word)] if isinstance(node, list) else node[word]
        except (IndexError, KeyError, ValueError, TypeError):
            return None
    return node


def set_value(cfg: Config, key: str, value: Any) -> None:
    """Set a config's value by its key."""
    *path, last = key.split(".")
    node: Any = cfg
    for word in path:
        node = node[int(word)] if isinstance(node, list) else node[word]
    if isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value


def with_values(cfg: Config, values: Mapping[str, Any]) -> Config:
    """A copy of the config with `KEY.PATH: value` set and nothing left to search; not frozen."""
    changed = cfg.clone()
    changed.defrost()
    changed.SEARCH = CfgNode()
    for key, value in values.items():
        set_value(changed, key, copy.deepcopy(value))
    return changed
