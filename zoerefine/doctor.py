"""What this machine has and lacks, and what it costs to lack it."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import cv2
import numpy as np
import torch

from zoerefine.device import free_memory, has_bf16

SAMPLE = 256 * 2**20  # bytes that speeds are measured with
FASTEST_OF = 3


@dataclass(frozen=True)
class MachineCheck:
    """A part, what is here of it, whether that is as it should be, and what lacking it costs."""

    what: str
    here: str
    good: bool
    cost: str


def examine(folder: Path) -> list[MachineCheck]:
    """Look at everything; `folder` is where caches would lie. Takes a few seconds."""
    checks: list[Callable[[], MachineCheck]] = [
        cores, memory, memory_speed, bf16, turbo, lambda: disk(folder), lambda: disk_speed(folder),
        gpu, pinned, tensorrt, git, lfs,
        lambda: package("transformers", "data.py zoedepth makes no pseudo depth from pictures"),
        lambda: package("ray", "run --executor ray and its cluster cannot be used"),
    ]  # fmt: skip
    return [check() for check in checks]


def cores() -> MachineCheck:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return MachineCheck(
        "CPU cores", str(count), (count or 1) > 1, "reading and training take turns"
    )


def memory() -> MachineCheck:
    free = free_memory() / 2**30
    return MachineCheck("free memory", f"{free:.1f} GiB", free > 4,
                 "records do not stay in memory: the disk is read in every epoch")  # fmt: skip


def memory_speed() -> MachineCheck:
    source, target = np.ones(SAMPLE // 8, np.int64), np.empty(SAMPLE // 8, np.int64)
    speed = SAMPLE / fastest(lambda: np.copyto(target, source)) / 1e9
    samples = speed * 1e9 / (96 * 4096)
    return MachineCheck("memory copies", f"{speed:.1f} GB/s", speed > 4,
                 f"a thread loads at most {samples:,.0f} frames/s of 192x256")  # fmt: skip


def bf16() -> MachineCheck:
    good = has_bf16(torch.device("cpu"))
    return MachineCheck("bfloat16 on the CPU", "yes" if good else "no", good,
                 "training and engines on the CPU take two to five times as long")  # fmt: skip


def turbo() -> MachineCheck:
    lines = [line for line in cv2.getBuildInformation().splitlines() if "JPEG:" in line]
    here = lines[0].split(":", 1)[1].strip() if lines else "no JPEG"
    return MachineCheck("libjpeg-turbo (OpenCV)", here, "turbo" in here.lower(),
                 "packing pictures takes up to twice as long")  # fmt: skip


def disk(folder: Path) -> MachineCheck:
    free = shutil.disk_usage(folder).free / 2**30
    return MachineCheck("free disk", f"{free:.0f} GiB in {folder}", free > 20,
                 "50,000 frames of 192x256 are 18 GiB packed; use CACHE.MODE off")  # fmt: skip


def disk_speed(folder: Path) -> MachineCheck:
    """Reads of a file that is not in memory."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(os.urandom(2**20) * (SAMPLE // 2**20))
        file.flush()
        os.fsync(file.fileno())

        def read() -> None:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.pread(file.fileno(), SAMPLE, 0)

        speed = SAMPLE / fastest(read) / 1e9
    return MachineCheck("disk reads", f"{speed:.2f} GB/s", speed > 0.2,
                 "the first epoch waits for the disk; every epoch, if memory is small")  # fmt: skip


def gpu() -> MachineCheck:
    if not torch.cuda.is_available():
        return MachineCheck("GPU", "none", False, "training takes ten to a hundred times as long")
    memory = torch.cuda.mem_get_info()[1] / 2**30
    driver = words_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    names = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, {memory:.0f} GiB"
    return MachineCheck(
        "GPU", f"{names}, driver {driver or '?'}, CUDA {torch.version.cuda}", True, ""
    )


def pinned() -> MachineCheck:
    cost = "copies to the GPU take two to three times as long and do not overlap"
    if not torch.cuda.is_available():
        return MachineCheck("pinned memory", "needs a GPU", False, cost)
    try:
        source = torch.empty(SAMPLE // 8, dtype=torch.int64, pin_memory=True)
    except RuntimeError as error:
        return MachineCheck("pinned memory", str(error).splitlines()[0], False, cost)
    target = torch.empty_like(source, device="cuda")

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()

    return MachineCheck(
        "pinned memory", f"{SAMPLE / fastest(copy) / 1e9:.1f} GB/s to the GPU", True, cost
    )


def tensorrt() -> MachineCheck:
    cost = "engines are TorchScript: two to four times as slow on a GPU"
    found = version_of("torch-tensorrt")
    if not found:
        return MachineCheck("Torch-TensorRT", "not installed", False, cost)
    matches = found.split(".")[:2] == torch.__version__.split(".")[:2]
    here = f"{found} {'for' if matches else 'does not fit'} torch {torch.__version__}"
    return MachineCheck("Torch-TensorRT", here, matches, cost)


def git() -> MachineCheck:
    here = words_of(["git", "--version"]).removeprefix("git version ")
    return MachineCheck("git", here or "not found", bool(here), "nothing can be run from a commit")


def lfs() -> MachineCheck:
    here = words_of(["git", "lfs", "version"]).split(" ")[0].removeprefix("git-lfs/")
    return MachineCheck("Git LFS", here or "not found", bool(here),
                 "commits with LFS files cannot be run")  # fmt: skip


def package(name: str, cost: str) -> MachineCheck:
    found = version_of(name)
    return MachineCheck(name, found or "not installed", bool(found), cost)


def version_of(name: str) -> str:
    """An installed package's version, or nothing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def words_of(command: list[str]) -> str:
    """The first line that a program prints; nothing where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return (done.stdout.splitlines() or [""])[0].strip()


def fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of a few rounds."""
    seconds = []
    for _ in range(FASTEST_OF):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
