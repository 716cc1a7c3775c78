"""What a worker of a search may use: GPUs of this machine, or what it reserves on a cluster."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.machine.cores import share_cores
from zoerefine.base.machine.memory import GPU_WORKERS
from zoerefine.base.run_dir import RUN_FOLDER
from zoerefine.lab.launch.queue.executor import Resources
from zoerefine.lab.launch.record.provenance import query_gpus
from zoerefine.lab.search.subject import Subject


@dataclass(frozen=True)
class MachineShares:
    """Workers on this machine share its cores, and each has some of its GPUs.

    Attributes:
        count: of the workers.
        gpus: that all workers together may use.
        devices: GPUs of each worker, if there are so many.
        processes: that train a trial together.
    """

    count: int
    gpus: Sequence[str]
    devices: int = 1
    processes: int = 1

    def environment(self, number: int) -> dict[str, str]:
        """The variables of a worker."""
        environment = {name: value for name, value in os.environ.items() if name != RUN_FOLDER}
        if self.count * self.processes > 1:
            share_cores(environment, self.count * self.processes)
        if self.gpus:
            devices = min(self.devices, len(self.gpus))
            groups = len(self.gpus) // devices
            environment[GPU_WORKERS] = str(math.ceil(self.count / groups))
            if len(self.gpus) > 1:
                first = number % groups * devices
                chosen = self.gpus[first : first + devices]
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
        return environment


def visible_gpus(devices: int) -> list[str]:
    """The GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them.

    Raises `UserError` where there are some, but fewer than `devices`, which STUDY.DEVICES is.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = query_gpus("index") if chosen is None else [*filter(None, chosen.split(","))]
    if gpus and devices > len(gpus):
        raise UserError(f"STUDY.DEVICES is {devices}, and this machine has {len(gpus)} GPUs")
    return gpus


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
