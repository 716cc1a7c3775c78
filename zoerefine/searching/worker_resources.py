"""What a cluster reserves for each worker of a study."""

from collections.abc import Mapping
from typing import Any

from zoerefine.errors import UserError
from zoerefine.launch.executor import Resources
from zoerefine.searching.trial_runner import Subject


def worker_settings(settings: Mapping[str, Any], subject: Subject) -> dict[str, Any]:
    """The fields of `Resources` for a study's workers, where no option sets them.

    STUDY.DEVICES GPUs where it is more than one, and at least a core for each process.

    Args:
        settings: that the config sets.
    """
    found = {"gpus": 0.0, "cpus": 1, **settings}
    if subject.options.DEVICES > 1:
        found["gpus"] = found["gpus"] or float(subject.options.DEVICES)
    return found | {"cpus": max(found["cpus"], subject.processes)}


def refuse_unfit(resources: Resources, devices: int) -> None:
    """Raises `UserError` for several nodes, and for GPUs that are not STUDY.DEVICES."""
    if resources.nodes > 1:
        raise UserError(
            f"--nodes {resources.nodes} (CLUSTER.NODES): each worker of a search runs on one node; "
            "set --workers for how many run at a time"
        )
    if devices > 1 and resources.gpus not in (0, devices):
        raise UserError(f"--gpus {resources.gpus:g} and STUDY.DEVICES {devices} differ")
