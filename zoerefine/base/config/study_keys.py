"""The keys of a search."""

import re
from dataclasses import dataclass
from typing import Any

from zoerefine.base.config.declare import LONGEST_S, MOST_EPOCHS, KeyGroup, key
from zoerefine.base.config.value_types import Check, Integer, ListOf, MappingOf, Number, OneOf, Text
from zoerefine.base.registries import OBJECTIVES, PRUNERS, SAMPLERS
from zoerefine.base.secrets import url_fault

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
        "one by the space; gp and cmaes need the extra `samplers`, auto where SEARCH has ranges "
        "only",
    )  # fmt: skip
    PRUNER: str = key(
        OneOf(PRUNERS), "auto",
        "which trials are stopped early, by the first objective; auto: median, with several "
        "objectives among the trials that are as good in the others",
    )  # fmt: skip
    STORAGE: str = key(
        Text("empty, sqlite:///FILE or postgresql://USER@HOST/DATABASE", url_fault, True), "",
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
                "train": "train the best at full length",
                "train,export": "also export its engine",
            }
        ),
        "",
        "what follows the last trial",
    )
    SEEDS: int = key(Integer(1, 10_000), 1, "trainings of the best config, each with its own seed")


PARTITION = re.compile(r"[A-Za-z0-9_][\w.,-]{0,255}", re.ASCII)
MEMORY = re.compile(r"[1-9]\d{0,11}[KMGT]?", re.ASCII)
TIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,5}))?(?::(\d{1,5}))?", re.ASCII)


def empty_or(form: re.Pattern[str], otherwise: str) -> Check:
    """The check of a text that may be empty; `otherwise` says how it is written."""
    return lambda text: "" if not text or form.fullmatch(text) else otherwise


@dataclass
class ClusterKeys(KeyGroup):
    """What a cluster reserves for each job or worker, on each node (`--executor ray`, `slurm`)."""

    GPUS: float = key(
        Number(at_least=0, at_most=1024), 0.0, "GPUs; with ray, 0.5: two jobs share one"
    )
    CPUS: int = key(Integer(1, 4096), 1, "CPU cores")
    NODES: int = key(Integer(1, 1024), 1, "nodes of a job that torchrun starts (`run`)")
    MEMORY: str = key(
        Text("a size such as 32G", empty_or(MEMORY, "write it as 32G")), "", "slurm: memory"
    )
    PARTITION: str = key(
        Text("the name of a partition", empty_or(PARTITION, "write gpu, or gpu,long")), "",
        "slurm: the partition, or several: gpu,long",
    )  # fmt: skip
    TIME: str = key(
        Text(
            "minutes, or a time such as 12:00:00 or 2-00 (days-hours)",
            empty_or(TIME, "write 90, 12:00:00 or 2-00"),
        ), "",
        "slurm: the time limit; a job that reaches it saves a checkpoint and is queued again",
    )  # fmt: skip
    GRACE_S: int = key(
        Integer(0, 65_535), 120, "slurm: how long before its time limit a job stops", "s"
    )
    REQUEUES: int = key(
        Integer(0, 1_000_000), 50, "slurm: how often a job is queued again at its time limit"
    )
