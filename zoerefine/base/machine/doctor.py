"""Checks of this machine: what is installed or fast enough, what is missing, what that costs."""

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

from zoerefine.base.machine.container import cpu_quota, memory_left
from zoerefine.base.machine.cores import SETTINGS, usable_cores
from zoerefine.base.machine.device import has_amx, has_bf16
from zoerefine.base.machine.memory import aligned_empty, free_memory

SAMPLE_BYTES = 256 * 2**20  # copied or read to measure a speed
ROUNDS = 3  # of a measurement; the fastest counts
RECORD_BYTES = 96 * 4096  # of a packed frame of 192x256


@dataclass(frozen=True)
class MachineCheck:
    """One part of the machine: what was found, whether that is enough, and the cost if not."""

    part: str
    found: str
    good: bool
    cost: str


def examine(folder: Path) -> list[MachineCheck]:
    """Check every part, in a few seconds; `folder` is where caches will be written."""
    checks: list[Callable[[], MachineCheck]] = [
        cores, openmp, memory, memory_speed, bf16, jpeg_decoder,
        lambda: disk_space(folder), lambda: disk_speed(folder),
        gpu, pinned_memory, tensorrt,
        lambda: package("OpenVINO", "openvino", "no openvino engines, the fastest on a CPU"),
        git, git_lfs,
        lambda: package("PyAV", "av", "no videos, neither read nor written"),
        lambda: package("transformers", "transformers", "zoerefine data cannot run depth networks"),
        lambda: package("Ray", "ray", "no jobs or trials on a Ray cluster"),
        lambda: package("rosbags", "rosbags", "zoerefine bag cannot read ROS 2 bags"),
    ]  # fmt: skip
    return [check() for check in checks]


def cores() -> MachineCheck:
    """The cores that this process may use."""
    count, quota = usable_cores(), cpu_quota()
    found = str(count)
    if count < (os.cpu_count() or 1):
        found += f" of {os.cpu_count()}"
    if quota is not None:
        found += f", quota of {quota:g}"
    cost = "loading and training share one core"
    return MachineCheck("CPU cores", found, count > 1, cost)


def openmp() -> MachineCheck:
    """How OpenMP's threads are set up, and whether they waste the cores of a busy machine."""
    settings = [f"{name} {os.environ[name]}" for name in SETTINGS if name in os.environ]
    found = ", ".join([f"{torch.get_num_threads()} threads", *settings])
    cost = "beside other busy processes training may be thirty times slower: unset OMP_WAIT_POLICY"
    spins = os.environ.get("OMP_WAIT_POLICY", "").upper() == "ACTIVE"
    return MachineCheck("OpenMP", found, not spins, cost)


def memory() -> MachineCheck:
    """Free memory, which caches the packed records."""
    free, limit = free_memory() / 2**30, " in this container" if memory_left() else ""
    cost = "packed records do not stay in memory; every epoch reads the disk"
    return MachineCheck("free memory", f"{free:.1f} GiB{limit}", free > 4, cost)


def memory_speed() -> MachineCheck:
    """Memory bandwidth of one thread."""
    source = np.ones(SAMPLE_BYTES // 8, np.int64)
    target = aligned_empty(source.shape, source.dtype)
    speed = SAMPLE_BYTES / fastest(lambda: np.copyto(target, source)) / 1e9
    frames = speed * 1e9 / RECORD_BYTES
    cost = f"one thread loads at most {frames:,.0f} frames/s of 192x256"
    return MachineCheck("memory copies", f"{speed:.1f} GB/s", speed > 4, cost)


def bf16() -> MachineCheck:
    """bfloat16 instructions of the CPU."""
    good = has_bf16(torch.device("cpu"))
    found = "AMX" if has_amx() else "AVX-512" if good else "no"
    cost = "no bf16 on the CPU; engines and training there use fp32"
    return MachineCheck("bfloat16 on the CPU", found, good, cost)


def jpeg_decoder() -> MachineCheck:
    """OpenCV's JPEG decoder."""
    lines = [line for line in cv2.getBuildInformation().splitlines() if "JPEG:" in line]
    found = lines[0].split(":", 1)[1].strip() if lines else "no JPEG"
    cost = "packing pictures takes up to twice as long"
    return MachineCheck("libjpeg-turbo (OpenCV)", found, "turbo" in found.lower(), cost)


def disk_space(folder: Path) -> MachineCheck:
    """Free disk space for caches."""
    free = shutil.disk_usage(folder).free / 2**30
    cost = "50,000 packed frames of 192x256 take 18 GiB; set CACHE.MODE off to pack nothing"
    return MachineCheck("free disk", f"{free:.0f} GiB in {folder}", free > 20, cost)


def disk_speed(folder: Path) -> MachineCheck:
    """Reading speed of a file that is not in memory."""
    cost = "the first epoch waits for the disk, and every epoch if memory is small"
    try:
        speed = read_speed(folder)
    except OSError as error:
        found = f"cannot be measured: {folder}: {error.strerror}"
        return MachineCheck("disk reads", found, False, "nothing can be written there")
    return MachineCheck("disk reads", f"{speed:.2f} GB/s", speed > 0.2, cost)


def read_speed(folder: Path) -> float:
    """GB/s of a new file in a folder. Raises `OSError` where none can be written."""
    room = shutil.disk_usage(folder).free // 4
    size = min(SAMPLE_BYTES, max(2**20, room // 2**20 * 2**20))
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(os.urandom(2**20) * (size // 2**20))
        file.flush()
        os.fsync(file.fileno())

        def read() -> None:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.pread(file.fileno(), size, 0)

        return size / fastest(read) / 1e9


def gpu() -> MachineCheck:
    """CUDA GPUs, their memory, driver and CUDA version."""
    driver = first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    if not torch.cuda.is_available():
        of_torch = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        found = f"torch {of_torch} cannot use it, driver {driver}" if driver else "none"
        return MachineCheck("GPU", found, False, "training takes ten to a hundred times as long")
    memory_gib = torch.cuda.mem_get_info()[1] / 2**30
    found = (
        f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, {memory_gib:.0f} GiB, "
        f"driver {driver or 'unknown'}, CUDA {torch.version.cuda}"
    )
    return MachineCheck("GPU", found, True, "")


def pinned_memory() -> MachineCheck:
    """Copies from page-locked memory to the GPU."""
    name, cost = "pinned memory", "copies to the GPU are two to three times slower, without overlap"
    if not torch.cuda.is_available():
        return MachineCheck(name, "needs a GPU", False, cost)
    try:
        source = torch.empty(SAMPLE_BYTES // 8, dtype=torch.int64, pin_memory=True)
    except RuntimeError as error:
        return MachineCheck(name, str(error).splitlines()[0], False, cost)
    target = torch.empty_like(source, device="cuda")

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()

    speed = SAMPLE_BYTES / fastest(copy) / 1e9
    return MachineCheck(name, f"{speed:.1f} GB/s to the GPU", True, cost)


def tensorrt() -> MachineCheck:
    """Torch-TensorRT, of the same version as torch."""
    name, cost = "Torch-TensorRT", "no tensorrt engines; on a GPU torchscript ones are slower"
    version = version_of("torch-tensorrt")
    if not version:
        return MachineCheck(name, "not installed", False, cost)
    matches = version.split(".")[:2] == torch.__version__.split(".")[:2]
    found = f"{version}, {'for' if matches else 'but not for'} torch {torch.__version__}"
    return MachineCheck(name, found, matches, cost)


def git() -> MachineCheck:
    """The git program."""
    found = first_line(["git", "--version"]).removeprefix("git version ")
    cost = "nothing can be run from a commit"
    return MachineCheck("git", found or "not found", bool(found), cost)


def git_lfs() -> MachineCheck:
    """Git's extension for large files."""
    found = first_line(["git", "lfs", "version"]).split(" ")[0].removeprefix("git-lfs/")
    cost = "commits with LFS files cannot be run"
    return MachineCheck("Git LFS", found or "not found", bool(found), cost)


def package(part: str, name: str, cost: str) -> MachineCheck:
    """A Python package."""
    version = version_of(name)
    return MachineCheck(part, version or "not installed", bool(version), cost)


def version_of(name: str) -> str:
    """An installed package's version; empty where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def first_line(command: list[str]) -> str:
    """The first line that a program prints; empty where it is not installed or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return (done.stdout.splitlines() or [""])[0].strip()


def fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of ROUNDS calls."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
