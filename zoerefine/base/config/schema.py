"""Every config key: its default, type, range or choices, unit and meaning; and what excludes what.

A group of keys is a dataclass, a key one of its fields: data_keys.py, training_keys.py and
study_keys.py declare them, and this module joins them. The code that reads a config is given a YACS
tree (`cfg.TRAIN.LR`), built from this declaration; type checkers see `Config`, so they find a
misspelt key. To add a key, add a line in its group; the checks, `zoerefine config` and
docs/configuration.md follow from it. A key that does not decide a run's results is also named in
zoerefine/base/config_roles.py.

Plain dataclasses rather than pydantic: YACS stays the face, so of pydantic only the bounds would be
used, and a few small classes (value_types.py) give those with messages of our own and no import
time.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any

from zoerefine.base.config import data_keys
from zoerefine.base.config.declare import MOST_SEED, Key, KeyGroup, group, key
from zoerefine.base.config.study_keys import ClusterKeys, StudyKeys
from zoerefine.base.config.training_keys import LossKeys, ModelKeys, TrainKeys
from zoerefine.base.config.value_types import Integer
from zoerefine.base.errors import UserError


@dataclass
class Config(KeyGroup):
    """The whole tree. SEARCH, which mirrors it, is not declared by keys."""

    if TYPE_CHECKING:
        SEARCH: Any

    SEED: int = key(Integer(0, MOST_SEED), 0, "random seed of everything")
    RUN: data_keys.RunKeys = group()
    DATA: data_keys.DataKeys = group()
    CACHE: data_keys.CacheKeys = group()
    LOADER: data_keys.LoaderKeys = group()
    AUGMENT: data_keys.AugmentKeys = group()
    POINTS: data_keys.PointKeys = group()
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


MOST_BATCH_PIXELS = 2**31
LEAST_UNET_BASE = 8
CUDA_GRAPHS = ("reduce-overhead", "max-autotune")


def check_combinations(cfg: Config) -> None:
    """Raises `UserError` with the first combination that cannot work, and what to change."""
    for check in (_data, _loader, _batch, _network, _loss, _start, _compile):
        check(cfg)


def _data(cfg: Config) -> None:
    data = cfg.DATA
    if not data.SPLIT and data.VAL_FRACTION + data.TEST_FRACTION >= 1:
        raise UserError(
            f"DATA.VAL_FRACTION {data.VAL_FRACTION:g} and DATA.TEST_FRACTION "
            f"{data.TEST_FRACTION:g} leave no scene to train on: their sum must be below 1"
        )


def _loader(cfg: Config) -> None:
    loader = cfg.LOADER
    if bool(loader.HEIGHT) != bool(loader.WIDTH):
        raise UserError(
            f"LOADER.HEIGHT {loader.HEIGHT} and LOADER.WIDTH {loader.WIDTH}: set both, or both to "
            "0 for the packed size"
        )
    if loader.ROTATE_EVERY and not loader.ROTATE_SCENES:
        raise UserError(
            f"LOADER.ROTATE_EVERY {loader.ROTATE_EVERY} needs LOADER.ROTATE_SCENES of at least 1: "
            "how many scenes are trained on at a time"
        )
    if loader.TIER in ("ram", "device") and cfg.CACHE.MODE == "off":
        raise UserError(
            f"LOADER.TIER {loader.TIER} needs a packed cache, and CACHE.MODE off keeps none: set "
            "CACHE.MODE build"
        )


def _batch(cfg: Config) -> None:
    for keys in (cfg.CACHE, cfg.LOADER):
        pixels = cfg.LOADER.BATCH * keys.HEIGHT * keys.WIDTH
        if pixels > MOST_BATCH_PIXELS:
            name = "CACHE" if keys is cfg.CACHE else "LOADER"
            raise UserError(
                f"LOADER.BATCH {cfg.LOADER.BATCH} of {name}.HEIGHT {keys.HEIGHT} and {name}.WIDTH "
                f"{keys.WIDTH} has {pixels:,} pixels, the limit is {MOST_BATCH_PIXELS:,}: lower "
                "one of them"
            )


def _network(cfg: Config) -> None:
    # Below, oneDNN for processors with AVX2 alone (torch 2.13) writes beyond its memory in the
    # backward pass of the last levels, whose channels are a half and a quarter of BASE.
    if cfg.MODEL.NAME == "unet" and cfg.MODEL.BASE < LEAST_UNET_BASE:
        raise UserError(
            f"MODEL.BASE {cfg.MODEL.BASE}: training MODEL.NAME unet with so few channels may crash "
            f"on a CPU: set it to at least {LEAST_UNET_BASE}"
        )


def _loss(cfg: Config) -> None:
    if not any(term["weight"] for term in cfg.LOSS.TERMS):
        raise UserError("LOSS.TERMS: every weight is 0, so there is nothing to minimize: raise one")


def _start(cfg: Config) -> None:
    if cfg.TRAIN.FROM and cfg.MODEL.PRETRAINED:
        raise UserError(
            "TRAIN.FROM and MODEL.PRETRAINED are both set, and each gives the first weights: "
            "remove one"
        )


def _compile(cfg: Config) -> None:
    mode = cfg.TRAIN.COMPILE
    if mode in CUDA_GRAPHS and cfg.TRAIN.ACCUMULATE > 1:
        raise UserError(
            f"TRAIN.COMPILE {mode} records CUDA graphs, whose gradients the next part of a batch "
            "would overwrite: set TRAIN.ACCUMULATE 1, or TRAIN.COMPILE default"
        )
    if mode == "max-autotune" and cfg.TRAIN.DETERMINISTIC:
        raise UserError(
            "TRAIN.COMPILE max-autotune chooses kernels by timing them, so bits vary: set "
            "TRAIN.DETERMINISTIC false, or TRAIN.COMPILE reduce-overhead"
        )
