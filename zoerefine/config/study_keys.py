"""The keys of a search."""

from dataclasses import dataclass
from typing import Any

from zoerefine.config.collection_types import ListOf, MappingOf
from zoerefine.config.declare import LONGEST_S, MOST_EPOCHS, KeyGroup, key
from zoerefine.config.value_types import Integer, Number, OneOf, Text
from zoerefine.registries import OBJECTIVES, PRUNERS, SAMPLERS
from zoerefine.storage_url import storage_fault

OBJECTIVE = OneOf(OBJECTIVES)


@dataclass
class StudyKeys(KeyGroup):
    """The study of a search."""

    TRIALS: int = key(Integer(1, 1_000_000), 20, "trials in all")
    TIMEOUT_S: float = key(
        Number(at_least=0, at_most=LONGEST_S),
        0.0,
        "no trial is started after this time; 0: no limit",
        "s",
    )
    PATIENCE: int = key(
        Integer(0, 1_000_000),
        0,
        "no trial is started after this many ended without a better one; 0: no limit",
        "trials",
    )
    EPOCHS: int = key(Integer(0, MOST_EPOCHS), 0, "epochs of a trial; 0: TRAIN.EPOCHS", "epochs")
    OBJECTIVES: list[str] = key(
        ListOf(OBJECTIVE, at_least=1, unique=True),
        ["abs_rel"],
        "what trials are compared by; delta1 is maximized, the others are minimized",
    )
    CONSTRAINTS: list[dict[str, Any]] = key(
        ListOf(MappingOf({"name": OBJECTIVE, "at_most": Number()})),
        [],
        "upper bounds on objectives, e.g. [{name: latency_ms, at_most: 10.0}]",
    )
    SAMPLER: str = key(
        OneOf(SAMPLERS), "tpe",
        "how the values of a trial are chosen; grid: every combination of the lists; auto: another "
        "one by the space; gp, cmaes and auto need the extra `samplers`",
    )  # fmt: skip
    PRUNER: str = key(
        OneOf(PRUNERS), "auto",
        "which trials are stopped early, by the first objective; auto: median where it is the only "
        "one, else none",
    )  # fmt: skip
    STORAGE: str = key(
        Text("empty, sqlite:///FILE or postgresql://USER@HOST/DATABASE", storage_fault, True), "",
        "the study's database; empty: a SQLite file beside the trials",
    )  # fmt: skip
    WORKERS: int = key(
        Integer(1, 4096), 1, "processes that run trials; each has STUDY.DEVICES GPUs"
    )
    DEVICES: int = key(
        Integer(1, 1024), 1,
        "GPUs of a trial: our own training starts a process for each of them (without GPUs: as "
        "many processes); a script sees them",
    )  # fmt: skip
    HEARTBEAT_S: int = key(
        Integer(1, 86_400),
        20,
        "heartbeat interval of a worker; after three missed ones it is dead",
        "s",
    )
    RETRIES: int = key(
        Integer(0, 1000),
        2,
        "continuations of a trial from its checkpoint after its worker or a process died",
    )
    THEN: str = key(
        OneOf(
            {
                "": "nothing",
                "train": "train the best at full length, validation scenes included",
                "train,export": "also export its engine",
            }
        ),
        "",
        "what follows the last trial",
    )
    SEEDS: int = key(Integer(1, 10_000), 1, "trainings of the best config, each with its own seed")
