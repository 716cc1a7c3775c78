"""The run directory: names of its files, state, link `latest`, and lock of the process that writes.

A run directory is runs/<name>/<id>/; runs/README.md describes every file. One process writes a
run and holds its lock. Others may read it at any time.
"""

import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files import atomic
from zoerefine.base.files.file_lock import Wait, is_locked, is_open_at, writer_lock
from zoerefine.base.messages import say

# Environment variables that a launcher sets for its job: the run directory, the user's folder,
# the seed, and how many times the run has been started.
RUN_FOLDER = "ZOEREFINE_RUN_FOLDER"
CALLER_FOLDER = "ZOEREFINE_CALLER_FOLDER"
SEED = "ZOEREFINE_SEED"
ATTEMPT = "ZOEREFINE_ATTEMPT"
NODE = "ZOEREFINE_NODE"  # of a job on several: its `NodePlace` as JSON
MAX_RUN_NAME_BYTES = 120
LAST_TIME_S = 1e11  # seconds since the epoch, in the year 5138
LARGEST_DOCUMENT = 64 * 2**20  # bytes of a config, results.json, provenance.json or status.json
LARGEST_DIGESTS = 10_000  # bytes of weights.sha256
NODE_FOLDER = re.compile(r"node-\d+")  # of another node of the run's job
REPORT_FILE = "collected.json"  # in the folder of every report of `zoerefine analyze`
LATEST = "latest"  # our link to the run of a name that was started last
ENGINE = "engine"  # the folder of engine bundles
# The names of engine bundles, one for each container (zoerefine/depth/exporting/bundle).
BUNDLE_NAMES = ("refiner.ts", "refiner.openvino", "refiner.onnx", "refiner.pt2")
OWN_FILE = r"[a-z][\w.-]*"  # what is written under the lock: the labels have a lock of their own
STATES = ("running", "finished", "failed", "killed")


@dataclass(frozen=True)
class Status:
    """The contents of `status.json`.

    Attributes:
        state: one of `STATES`.
        reason: why the run failed or was killed.
        started, ended: seconds since the epoch; `ended` is 0 during the run.
        pid, host: the process that wrote this status.
    """

    state: str
    reason: str = ""
    started: float = 0.0
    ended: float = 0.0
    pid: int = 0
    host: str = ""


STATUS_KINDS: dict[str, tuple[type, ...]] = {
    name: (int, float) if default == 0 else (str,) for name, default in asdict(Status("")).items()
}


class Place:
    """The path of something in a run's folder, as an attribute of the run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: "RunDir | None", _: type) -> Path:
        return run.path / self.name if run else Path(self.name)


@dataclass(frozen=True)
class RunDir:
    """A run's folder and the paths of its files."""

    path: Path

    config_file = Place("config.yaml")
    provenance_file = Place("provenance.json")
    metrics_file = Place("metrics.jsonl")
    split_file = Place("split.json")  #: The scenes for training, validation and test.
    results_file = Place("results.json")
    validation_picture = Place("validation.png")  #: Frames, refined with the best weights.
    status_file = Place("status.json")
    lock_file = Place(".lock")  #: Held by the process that writes the run.
    log_file = Place("log.txt")
    left = Place("left")  #: What a launched job left in its workspace, by its paths there.
    left_file = Place("left.json")  #: Their list. Without it their collection is not complete.
    weights_digest_file = Place("weights.sha256")
    checkpoints = Place("checkpoints")
    tensorboard = Place("tb")
    engine = Place(ENGINE)
    exported_file = Place(f"{ENGINE}/exported")  #: The name of the bundle that was exported last.
    report = Place("report")

    @property
    def bundle(self) -> Path:
        """The engine bundle that was exported last; one that does not exist if there is none.

        A file names it, since a copy of the folder may have other times. Where that bundle
        was removed, the newest counts.
        """
        bundles = {name: self.engine / name for name in BUNDLE_NAMES}
        with suppress(OSError, UserError, UnicodeError):
            require_file(self.exported_file)
            named = bundles.get(self.exported_file.read_text().strip())
            if named and named.exists():
                return named
        return max(bundles.values(), key=modified_ns)

    def create(self) -> None:
        """Create the folder; git ignores a run root (`runs/`) that is created on the way.

        Raises `UserError` where it cannot be created.
        """
        try:
            atomic.create_ignored_folder(self.path.parent.parent)
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.path} cannot be created: {error.strerror}") from None

    def status(self) -> Status:
        """The recorded state. A run that is recorded as running but not locked was killed."""
        try:
            with damage_named(self.status_file):
                require_file(self.status_file)
                status = Status(**json.loads(self.status_file.read_text()))
                for name, kinds in STATUS_KINDS.items():
                    if not isinstance(getattr(status, name), kinds):
                        raise ValueError(f"{name} is {getattr(status, name)!r}")
                if status.state not in STATES:
                    raise ValueError(f"there is no state {status.state}")
                if not all(abs(time_s) < LAST_TIME_S for time_s in (status.started, status.ended)):
                    raise ValueError("a time is out of range")
        except FileNotFoundError:
            return Status("killed", "never started")
        if status.state == "running" and not is_locked(self.lock_file):
            return Status("killed", "its process is gone", status.started)
        return status

    def set_status(self, state: str, reason: str = "") -> None:
        """Record `state`, one of `STATES`, with the reason for a failure."""
        assert state in STATES, state
        now = time.time()
        running = state == "running"
        started = now if running else self.status().started
        ended = 0.0 if running else now
        status = Status(state, reason, started, ended, os.getpid(), socket.gethostname())
        atomic.write_json(self.status_file, asdict(status))

    def read_json(self, path: Path) -> dict[str, Any]:
        """One of the run's JSON files. Raises `UserError` where it is missing or damaged."""
        try:
            with damage_named(path):
                require_file(path)
                value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{self.path} has no {path.name}: is it a finished run?") from None
        if not isinstance(value, dict):
            raise damaged(path, f"it holds {type(value).__name__}, not a mapping")
        return value

    def document(self, path: Path) -> dict[str, Any]:
        """As `read_json`; empty where there is no such file."""
        return self.read_json(path) if os.path.lexists(path) else {}

    def recorded(self) -> dict[str, Any]:
        """`provenance.json`; empty where there is none. Raises `UserError` where it is damaged."""
        return self.document(self.provenance_file)

    def weights_digests(self) -> list[str]:
        """The digest of the best weights; none before they are written, two during a change.

        Raises `UserError` where the file is damaged, or cannot be read.
        """
        path = self.weights_digest_file
        try:
            with damage_named(path):
                return atomic.read_regular_file(path, LARGEST_DIGESTS).decode().split()
        except FileNotFoundError:
            return []

    def weights_digest(self) -> str:
        """`weights_digests` as one text; empty before they are written."""
        return "\n".join(self.weights_digests())

    def results(self) -> dict[str, Any]:
        """Final metrics by split, scene and depth. Raises `UserError` for an unfinished run."""
        return self.read_json(self.results_file)

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`, without a last row that a kill cut short."""
        if not self.metrics_file.exists():
            return []
        rows: list[dict[str, Any]] = []
        with open(self.metrics_file, "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    rows.append(self._row(line, len(rows) + 1))
        return rows

    def _row(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.metrics_file}, line {number} is damaged: {error}") from None
        if not isinstance(row, dict):
            raise UserError(f"{self.metrics_file}, line {number} is damaged: it is no mapping")
        return row

    @contextmanager
    def locked(self, wait: Wait = Wait.FOR_NOBODY) -> Iterator[int]:
        """Hold the lock for writing; yields its file descriptor.

        Removes what a killed process left half-written.

        The job of a launcher (`ZOEREFINE_RUN_FOLDER` names this folder) has inherited the lock:
        there this does nothing and yields -1. Raises `UserError` where another process writes
        this run.
        """
        if run_from_launcher() == self:
            yield -1
            return

        def writer() -> tuple[int, str]:
            status = self.status()
            return status.pid, status.host

        self.create()
        with writer_lock(self.lock_file, writer, wait) as descriptor:
            for folder in (self.path, self.checkpoints):
                atomic.remove_half_written(folder.glob(atomic.HALF_WRITTEN), OWN_FILE)
            yield descriptor

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Hold the lock and record the state: running, then finished, failed or killed.

        Yields the lock's file descriptor. In the job of a launcher this does nothing and yields
        -1, since the launcher does both.
        """
        if run_from_launcher() == self:
            yield -1
            return
        with self.locked() as descriptor:
            self.set_status("running")
            try:
                yield descriptor
            except BaseException as error:
                if not is_open_at(descriptor, self.lock_file):  # begin no folder here
                    raise was_moved(self.path) from None
                if isinstance(error, KeyboardInterrupt):
                    self.set_status("killed", "interrupted")
                else:
                    self.set_status("failed", str(error) or type(error).__name__)
                raise
            self.set_status("finished")


def was_moved(path: Path) -> UserError:
    """The error for a run's folder that is no longer where it was when its writing began."""
    return UserError(
        f"{path} was moved or deleted while it was written: move it back, and start the same "
        "command again"
    )


def damaged(path: Path, reason: str) -> UserError:
    """The error for a document that cannot be read; what to do about those that a run needs."""
    is_needed = path.name in (RunDir.status_file.name, RunDir.provenance_file.name)
    cure = f": put back a copy of it, or delete {path.parent}" if is_needed else ""
    return UserError(f"{path} is damaged: {reason}{cure}")


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Raises `UserError`, naming the file, where reading it fails; `FileNotFoundError` stays."""
    try:
        yield
    except FileNotFoundError:
        raise
    except RecursionError:
        raise damaged(path, "nested too deeply") from None
    except (ValueError, TypeError) as error:
        raise damaged(path, str(error)) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def require_file(path: Path) -> None:
    """Check a document before it is read.

    Raises:
        FileNotFoundError: there is nothing at the path.
        UserError: it is a folder, a pipe, a device, a broken link, or too large for a document.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise UserError(f"{path} is a broken link") from None
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"{path} is not a regular file")
    if found.st_size > LARGEST_DOCUMENT:
        raise UserError(f"{path} is larger than {LARGEST_DOCUMENT >> 20} MiB")


def run_name_fault(name: str) -> str:
    """Why a text cannot be RUN.NAME, which becomes a folder's name; empty if it can."""
    if not name:
        return "it is empty"
    if "/" in name:
        return "it contains a slash; RUN.ROOT says where runs are written"
    if name[0] in ".- ":
        return "it starts with a dot, a dash or a space"
    if name[-1] in ". ":
        return "it ends with a dot or a space"
    if not name.isprintable():
        return "it contains characters that cannot be printed"
    if len(name.encode("utf-8", "replace")) > MAX_RUN_NAME_BYTES:
        return f"it is longer than {MAX_RUN_NAME_BYTES} bytes"
    return ""


def modified_ns(path: Path) -> int:
    """When a file was last written, in nanoseconds; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def run_from_launcher() -> RunDir | None:
    """The run directory that a launcher gave to this process; None without a launcher."""
    folder = os.environ.get(RUN_FOLDER)
    return RunDir(Path(folder)) if folder else None


def link_latest(run: RunDir) -> None:
    """Let runs/<name>/latest name this run, unless that is a file or folder of the user's.

    The caller holds the run's lock, so what a killed launch left under the temporary name is ours.
    """
    latest = run.path.parent / LATEST
    if latest.exists() and not latest.is_symlink():
        say(f"{latest} is not our link: it stays as it is")
        return
    link = run.path.parent / f".{LATEST}.{run.path.name}"
    link.unlink(missing_ok=True)
    link.symlink_to(run.path.name)
    os.replace(link, latest)
