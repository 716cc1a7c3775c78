"""The keys of what a cluster reserves, and the forms that Slurm accepts."""

import re
from dataclasses import dataclass

from zoerefine.config.declare import KeyGroup, key
from zoerefine.config.value_types import Integer, Number, Text

PARTITION = re.compile(r"[A-Za-z0-9_][\w.,-]{0,255}", re.ASCII)
MEMORY = re.compile(r"[1-9]\d{0,11}[KMGT]?", re.ASCII)
TIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,5}))?(?::(\d{1,5}))?", re.ASCII)


def partition_fault(text: str) -> str:
    """Why a text names no partition; empty where it can."""
    return "" if not text or PARTITION.fullmatch(text) else "write gpu, or gpu,long"


def memory_fault(text: str) -> str:
    """Why a text is no amount of memory; empty where it is."""
    return "" if not text or MEMORY.fullmatch(text) else "write it as 32G"


def time_fault(text: str) -> str:
    """Why a text is no time limit; empty where it is."""
    return "" if not text or TIME.fullmatch(text) else "write 90, 12:00:00 or 2-00"


@dataclass
class ClusterKeys(KeyGroup):
    """What a cluster reserves for each job or worker, on each node (`--executor ray`, `slurm`)."""

    GPUS: float = key(
        Number(at_least=0, at_most=1024), 0.0, "GPUs; with ray, 0.5: two jobs share one"
    )
    CPUS: int = key(Integer(1, 4096), 1, "CPU cores")
    NODES: int = key(Integer(1, 1024), 1, "nodes of a job that torchrun starts (`run`)")
    MEMORY: str = key(Text("a size such as 32G", memory_fault), "", "slurm: memory")
    PARTITION: str = key(
        Text("the name of a partition", partition_fault), "",
        "slurm: the partition, or several: gpu,long",
    )  # fmt: skip
    TIME: str = key(
        Text("minutes, or a time such as 12:00:00 or 2-00 (days-hours)", time_fault), "",
        "slurm: the time limit; a job that reaches it saves a checkpoint and is queued again",
    )  # fmt: skip
    GRACE_S: int = key(
        Integer(0, 65_535), 120, "slurm: how long before its time limit a job stops", "s"
    )
    REQUEUES: int = key(
        Integer(0, 1_000_000), 50, "slurm: how often a job is queued again at its time limit"
    )
