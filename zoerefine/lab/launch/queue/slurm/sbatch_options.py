"""What a job asks Slurm for, as options of sbatch, and whether its time limit leaves it time."""

import re

from zoerefine.base.config.study_keys import TIME
from zoerefine.base.errors import UserError
from zoerefine.lab.launch.queue.executor import Resources
from zoerefine.lab.launch.queue.slurm import commands

EARLY_S = 60  # Slurm may ask a job to stop so long before its grace begins
FIELD = re.compile(r"(\w+)=(\S*)")
NO_LIMIT = ("NONE", "UNLIMITED")


def sbatch_options(resources: Resources) -> list[str]:
    """The options of sbatch for a job. Raises `UserError` for what Slurm cannot reserve."""
    if resources.gpus != int(resources.gpus):
        raise UserError(f"--gpus {resources.gpus}: Slurm reserves whole GPUs: give 1, 2, ...")
    if resources.time:
        check_limit(f"--time {resources.time}", seconds_of(resources.time), resources.grace)
    # B: the signal goes to the script alone, which asks its launcher to stop.
    words = [f"--nodes={resources.nodes}", f"--ntasks={resources.nodes}", "--ntasks-per-node=1"]
    words += ["--requeue", "--open-mode=append", f"--cpus-per-task={resources.cpus}"]
    words += [f"--signal=B:USR1@{resources.grace}"]
    given = {"partition": resources.partition, "time": resources.time, "mem": resources.memory}
    words += [f"--{name}={value}" for name, value in given.items() if value]
    return words + ([f"--gres=gpu:{resources.gpus:.0f}"] if resources.gpus else [])


def check_limit(what: str, limit_s: int, grace_s: int) -> None:
    """Raises `UserError` for a time limit at which a job may be stopped before it has begun."""
    if limit_s <= grace_s + EARLY_S:
        raise UserError(
            f"{what} may leave a job no time: Slurm asks it to stop --grace {grace_s} s before its "
            f"limit, or up to {EARLY_S} s earlier; give a --time of more than "
            f"{grace_s + EARLY_S} s, or a shorter --grace"
        )


def seconds_of(time: str) -> int:
    """A time limit of Slurm in seconds: MIN, MIN:SEC, HOURS:MIN:SEC, or DAYS-HOURS[:MIN[:SEC]]."""
    match = TIME.fullmatch(time)
    assert match is not None, time
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:  # minutes come first
        numbers.insert(0, 0)
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def check_partition_limits(resources: Resources) -> None:
    """Raises `UserError` for a partition that would stop the jobs before they have begun.

    Where Slurm does not answer, nothing is known.
    """
    try:
        printed = commands.run_slurm("scontrol", "--oneliner", "--all", "show", "partition")
    except commands.SlurmError:
        return
    chosen = resources.partition.split(",") if resources.partition else []
    for line in printed.splitlines():
        fields = dict(FIELD.findall(line))
        name = fields["PartitionName"]
        limits = (fields["DefaultTime"], fields["MaxTime"])  # of jobs that ask for none
        limit = next((limit for limit in limits if limit not in NO_LIMIT), "")
        if limit and (name in chosen if chosen else fields["Default"] == "YES"):
            what = f"the time limit {limit} of the partition {name}"
            check_limit(what, seconds_of(limit), resources.grace)
