"""The roles of the config's keys: one table of which keys decide results.

What makes two runs the same is derived from it. Each rule is a set of roles:

- a training is named by the keys that decide its result (`training_settings`);
- a group of runs in the analysis is a training without its seed (`group_settings`);
- a study is a training and what is searched (`study_settings`);
- a launch is a job, with the place of its data (zoerefine/lab/launch/identity.py).

A key that the table does not name decides results.
"""

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

from zoerefine.base.files.atomic import digest_json
from zoerefine.base.yaml.keys import flatten

SEED = "SEED"
OWN_MODULES = "zoerefine."
# Keys that name weights to start from, group and key, with their fact in provenance.json.
WEIGHT_KEYS = (("TRAIN", "FROM", "started_from"), ("MODEL", "PRETRAINED", "pretrained"))
# Keys that name files which decide results: their digest counts, not their place.
FILE_KEYS = (*WEIGHT_KEYS, ("DATA", "SPLIT", "split_file"))


class Role(Enum):
    """What a config key decides."""

    RESULT = "the result of a training"
    DATA = "where the data are; their digest is recorded"
    PLACE = "where files are written"
    SPEED = "how fast it runs; the bits are the same"
    REPORT = "what is recorded while it runs"
    SEARCH = "what a search tries and compares"
    BUDGET = "how much a search tries, and by what means"
    CLUSTER = "what a cluster reserves for a job"


# By key, or by group for all of its keys that are not named themselves.
ROLES: Mapping[str, Role] = {
    "RUN": Role.PLACE,
    "DATA.ROOT": Role.DATA,
    "DATA.POINTS": Role.DATA,
    "CACHE.ROOT": Role.PLACE,
    "CACHE.WORKERS": Role.SPEED,
    "LOADER.TIER": Role.SPEED,
    "LOADER.THREADS": Role.SPEED,
    "TRAIN.LOG_EVERY": Role.REPORT,
    "TRAIN.PICTURES": Role.REPORT,
    "TRAIN.HISTOGRAMS": Role.REPORT,
    "TRAIN.CHECKPOINT_S": Role.REPORT,
    "TRAIN.CHECKPOINTS": Role.REPORT,
    "STUDY": Role.BUDGET,
    "STUDY.DEVICES": Role.SEARCH,  # rounding of several processes decides a trial's figures
    "STUDY.EPOCHS": Role.SEARCH,
    "STUDY.OBJECTIVES": Role.SEARCH,
    "STUDY.CONSTRAINTS": Role.SEARCH,
    "SEARCH": Role.SEARCH,
    "CLUSTER": Role.CLUSTER,
}

TRAINING = {Role.RESULT}
STUDY = {Role.RESULT, Role.SEARCH}


@lru_cache(maxsize=4096)  # an analysis asks for the same keys of every run
def role_of(key: str) -> Role:
    """The role of a key such as `TRAIN.LR`."""
    while key:
        if key in ROLES:
            return ROLES[key]
        key = key.rpartition(".")[0]
    return Role.RESULT


def settings(tree: Mapping[str, Any], roles: set[Role]) -> dict[str, Any]:
    """The keys of these roles in a config tree, as one level: `TRAIN.LR: value`."""
    return {key: value for key, value in flatten(tree).items() if role_of(key) in roles}


def training_settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the result of a training, besides commit, machine and data."""
    return settings(tree, TRAINING)


def training_digest(tree: Mapping[str, Any]) -> str:
    """SHA-256 of `training_settings`, in hex: `config_digest` in provenance.json."""
    return digest_json(training_settings(tree))


def study_settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the trials of a study, besides commit, machine, data and budget."""
    return settings(tree, STUDY)


def group_settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What runs of one group have in common: all of `training_settings` but the seed."""
    return {key: value for key, value in training_settings(tree).items() if key != SEED}


def compared_settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What the analysis can filter and group by: also what decides speed or what is recorded."""
    compared = {Role.RESULT, Role.SPEED, Role.REPORT}
    return {key: value for key, value in settings(tree, compared).items() if key != SEED}
