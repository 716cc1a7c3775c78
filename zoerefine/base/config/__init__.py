"""The configuration: every key with its default, allowed values and meaning; loading and saving.

schema.py declares the keys and knows which values exclude each other, loading.py reads files and
command lines. docs/configuration.md shows it from the outside.
"""

from typing import TYPE_CHECKING

from zoerefine.base.config.loading import (
    check_value,
    defaults,
    load_config,
    merge,
    save_config,
    to_dict,
    training_size,
)

if TYPE_CHECKING:
    from zoerefine.base.config.schema import Config
else:
    from yacs.config import CfgNode as Config

__all__ = [
    "Config",
    "check_value",
    "defaults",
    "load_config",
    "merge",
    "save_config",
    "to_dict",
    "training_size",
]

# What other packages import from here; the rest is this package's own.
OPEN = (
    "data_keys",
    "paths",
    "loading",
    "schema",
    "search_ranges",
    "searched_keys",
    "study_keys",
    "training_keys",
    "value_types",
)
