"""Every config key: its default, type, range or choices, unit and meaning.

A group of keys is a dataclass, a key one of its fields: data_keys.py, training_keys.py and
study_keys.py declare them, and this module joins them. The code that reads a
config is given a YACS tree (`cfg.TRAIN.LR`), built from this declaration; type checkers see
`Config`, so they find a misspelt key. To add a key, add a line in its group; the checks,
`zoerefine config` and docs/configuration.md follow from it. A key that does not decide a run's
results is also named in zoerefine/base/identity.py.

Plain dataclasses rather than pydantic: YACS stays the face, so of pydantic only the bounds would be
used, and a few small classes (value_types.py) give those with messages of our own and no import
time.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any

from zoerefine.base.config.data_keys import (
    AugmentKeys,
    CacheKeys,
    DataKeys,
    LoaderKeys,
    PointKeys,
    RunKeys,
)
from zoerefine.base.config.declare import MOST_SEED, Key, KeyGroup, group, key
from zoerefine.base.config.study_keys import ClusterKeys, StudyKeys
from zoerefine.base.config.training_keys import LossKeys, ModelKeys, TrainKeys
from zoerefine.base.config.value_types import Integer


@dataclass
class Config(KeyGroup):
    """The whole tree. SEARCH, which mirrors it, is not declared by keys."""

    if TYPE_CHECKING:
        SEARCH: Any

    SEED: int = key(Integer(0, MOST_SEED), 0, "random seed of everything")
    RUN: RunKeys = group()
    DATA: DataKeys = group()
    CACHE: CacheKeys = group()
    LOADER: LoaderKeys = group()
    AUGMENT: AugmentKeys = group()
    POINTS: PointKeys = group()
    MODEL: ModelKeys = group()
    LOSS: LossKeys = group()
    TRAIN: TrainKeys = group()
    STUDY: StudyKeys = group()
    CLUSTER: ClusterKeys = group()


def keys_of(group: type = Config, prefix: str = "") -> Iterator[Key]:
    """The keys of a group and of the groups inside it, in their order."""
    for one in fields(group):
        if one.metadata:
            yield Key(f"{prefix}{one.name}", **one.metadata)
        else:
            yield from keys_of(_class_of(one), f"{prefix}{one.name}.")


def _class_of(one: "Field[Any]") -> type:
    assert isinstance(one.type, type)
    return one.type


SEARCH = "SEARCH"
GROUPS: dict[str, str] = {
    one.name: _class_of(one).__doc__ or "" for one in fields(Config) if not one.metadata
}
KEYS: dict[str, Key] = {one.name: one for one in keys_of()}
