"""What the system says of processes."""

from pathlib import Path


def stat_of(pid):
    """State, parent and so on of a process. Raises `OSError` where there is none."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_alive(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return stat_of(pid)[0] != "Z"
    except OSError:
        return False


def parent_of(pid):
    """The process that started it, or has adopted it."""
    return int(stat_of(pid)[1])
