"""What a Slurm job has in its run: `slurm/` with its command, its number, its log and its end."""

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.files import write_json, write_text
from zoerefine.launch.executor import JobOutcome, Resources
from zoerefine.launch.executor.slurm_commands import PREFIX

FOLDER = "slurm"
NODE_PROGRAM = "zoerefine.launch.executor.slurm_job"
# USR1 comes before the time limit; it must not end the script before Python waits for it.
SCRIPT = "#!/bin/sh\ntrap '' USR1\nexec {python} -P -m {program} {folder}\n"


@dataclass(frozen=True)
class SlurmFiles:
    """The folder `slurm/` of a launch, which the submitting machine and the nodes share."""

    folder: Path

    @property
    def lock_file(self) -> Path:
        """Held by the command that submits."""
        return self.folder / ".lock"

    @property
    def script_file(self) -> Path:
        return self.folder / "job.sh"

    @property
    def job_file(self) -> Path:
        """The words of `zoerefine run`, and the job's resources."""
        return self.folder / "job.json"

    @property
    def number_file(self) -> Path:
        """The number of the job that was submitted last."""
        return self.folder / "submitted.json"

    @property
    def outcome_file(self) -> Path:
        """How that job ended."""
        return self.folder / "outcome.json"

    @property
    def limits_file(self) -> Path:
        """How often that job was queued again at its time limit."""
        return self.folder / "requeued.json"

    @property
    def job_files(self) -> tuple[Path, ...]:
        """What is written for a job, and what an earlier one may have left."""
        return self.script_file, self.job_file, self.outcome_file, self.limits_file

    @property
    def job_name(self) -> str:
        """The name by which Slurm's own list finds the job of this folder."""
        return PREFIX + sha256(str(self.folder).encode(errors="surrogateescape")).hexdigest()[:16]

    def log_file(self, number: str) -> Path:
        """The launcher's messages. The job's output is in the run's log.txt."""
        return self.folder / f"{number}.log"

    def write_job(self, words: Sequence[str], resources: Resources) -> None:
        """Write the script and its data, and remove what an earlier job left."""
        for path in (self.outcome_file, self.limits_file):
            path.unlink(missing_ok=True)
        write_json(self.job_file, {"words": list(words), **asdict(resources)})
        python, folder = shlex.quote(sys.executable), shlex.quote(str(self.folder))
        text = SCRIPT.format(python=python, program=NODE_PROGRAM, folder=folder)
        write_text(self.script_file, text)

    def changed_resources(self, wanted: Resources) -> list[str]:
        """The fields of `Resources` in which the last job differs from what is wanted."""
        recorded = read(self.job_file)
        return [name for name, value in asdict(wanted).items() if recorded.get(name) != value]

    def write_outcome(self, number: str, outcome: JobOutcome) -> None:
        """Record how a job ended."""
        write_json(self.outcome_file, {"job": number, **asdict(outcome)})

    def outcome(self, number: str) -> JobOutcome | None:
        """How a job ended; None where it has not recorded that."""
        found = read(self.outcome_file)
        if found.get("job") != number:
            return None
        by_cluster = bool(found.get("by_cluster"))
        return JobOutcome(int(found["code"]), str(found["message"]), by_cluster)

    def requeued(self, number: str) -> int:
        """How often a job was queued again at its time limit."""
        found = read(self.limits_file)
        return int(found["times"]) if found.get("job") == number else 0

    def count_requeue(self, number: str) -> None:
        """Record that a job is queued again at its time limit."""
        write_json(self.limits_file, {"job": number, "times": self.requeued(number) + 1})


def read(path: Path) -> dict[str, Any]:
    """A JSON file of ours; empty where there is none."""
    with suppress(FileNotFoundError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}
