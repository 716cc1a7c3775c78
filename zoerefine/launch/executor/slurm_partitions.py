"""The time limit of a Slurm partition, for jobs that ask for none."""

import re

from zoerefine.launch.executor import Resources
from zoerefine.launch.executor.slurm_commands import SlurmError, run_slurm
from zoerefine.launch.executor.slurm_options import check_limit, seconds_of

FIELD = re.compile(r"(\w+)=(\S*)")
NO_LIMIT = ("NONE", "UNLIMITED")


def check_partition_limits(resources: Resources) -> None:
    """Raises `UserError` for a partition that would stop the jobs before they have begun.

    Where Slurm does not answer, nothing is known.
    """
    try:
        printed = run_slurm("scontrol", "--oneliner", "--all", "show", "partition")
    except SlurmError:
        return
    chosen = resources.partition.split(",") if resources.partition else []
    for line in printed.splitlines():
        fields = dict(FIELD.findall(line))
        name = fields["PartitionName"]
        limit = time_limit(fields)
        if limit and (name in chosen if chosen else fields["Default"] == "YES"):
            what = f"the time limit {limit} of the partition {name}"
            check_limit(what, seconds_of(limit), resources.grace)


def time_limit(fields: dict[str, str]) -> str:
    """The limit of a partition's jobs that ask for none; empty where there is none."""
    limits = (fields["DefaultTime"], fields["MaxTime"])
    return next((limit for limit in limits if limit not in NO_LIMIT), "")
