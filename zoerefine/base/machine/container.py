"""The limits of a container: how much processor time and memory it leaves to this process.

Containers are control groups, versions 1 and 2. A group's limits hold for every group inside it, so
the smallest on the way to the root counts.
"""

from collections.abc import Iterator
from pathlib import Path

NO_LIMIT = 2**60  # version 1 writes about 2^63 for "none"


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that this process may use, e.g. 0.5; None without a limit."""
    quotas = []
    for folder, version in _groups("cpu", root):
        if version == 2:
            words = _words(folder / "cpu.max")
        else:
            words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(words) == 2 and words[0] not in ("max", "-1"):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that this process's groups may still take; None without a limit.

    The file cache of a group counts as free, since the system takes it back when needed.
    """
    found = [left for folder, _ in _groups("memory", root) if (left := _left(folder)) is not None]
    return min(found, default=None)


def _left(folder: Path) -> int | None:
    limit, used, files = (
        _number(folder / "memory.max", folder / "memory.limit_in_bytes"),
        _number(folder / "memory.current", folder / "memory.usage_in_bytes"),
        _file_cache(folder / "memory.stat"),
    )
    if limit is None or used is None or limit >= NO_LIMIT:
        return None
    return max(0, limit - max(0, used - files))


def _file_cache(stat: Path) -> int:
    values = dict(line.split() for line in _text(stat).splitlines())
    prefix = "total_" if "total_inactive_file" in values else ""  # with the groups inside
    return sum(int(values.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))


def _groups(controller: str, root: Path) -> Iterator[tuple[Path, int]]:
    """The folders of this process's group and of those around it, with cgroup's version."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, group = line.split(":", 2)
        version = 1 if names else 2
        if version == 1 and controller not in names.split(","):
            continue
        for start, mount in _mounts(controller, version, root):
            # In a container the mount may begin at the container's own group.
            inside = group.removeprefix(start.rstrip("/")).strip("/")
            folder = mount / inside
            around = (one for one in folder.parents if one.is_relative_to(mount))
            yield from ((one, version) for one in (folder, *around))


def _mounts(controller: str, version: int, root: Path) -> Iterator[tuple[str, Path]]:
    """The group at which a mount begins, and the mount's folder."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        first, _, last = line.partition(" - ")
        start, folder = first.split()[3:5]
        kind, _, options = last.split(" ", 2)
        names = options.split(",") if kind == "cgroup" else []
        if kind == "cgroup2" if version == 2 else controller in names:
            yield start, root / folder.lstrip("/")


def _number(*paths: Path) -> int | None:
    """The number in the first of some files that exists; None for `max`."""
    words = next(filter(None, map(_words, paths)), [])
    return int(words[0]) if words and words[0] != "max" else None


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _text(path: Path) -> str:
    """The content of a file; empty where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
