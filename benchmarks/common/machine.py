"""The machine that a benchmark runs on, and whether it was idle enough for its figures to count."""

import os
import time
from pathlib import Path
from typing import Any

from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.machine.processor import described

BUSY_LOAD = 1.0  # above this load average other processes took a core


def processor() -> str:
    """The processor's name, family and model: clouds give several generations one name."""
    name = " ".join(described("model name").split()) or "unknown processor"
    return f"{name} (family {described('cpu family')}, model {described('model')})"


def load_average() -> float:
    """Processes that ran or waited to run, in the mean of the last minute."""
    return round(os.getloadavg()[0], 2)


def machine_now() -> dict[str, Any]:
    """Processor, cores, load average and date, to be noted before the work."""
    return {
        "processor": processor(),
        "cores": usable_cores(),
        "load_before": load_average(),
        "date": time.strftime("%Y-%m-%d"),
    }


def of_installed_commands(cache: Path) -> dict[str, str]:
    """Our environment variables as for installed commands: compiled modules are kept, in `cache`.

    Some machines forbid it by PYTHONDONTWRITEBYTECODE. Then each start of a program that was not
    installed by pip would compile it again, and that of others would not.
    """
    found = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return found | {"PYTHONPYCACHEPREFIX": str(cache)}


def was_busy(machine: dict[str, Any]) -> bool:
    """Whether other processes ran when the benchmark began."""
    return bool(machine["load_before"] > BUSY_LOAD)
