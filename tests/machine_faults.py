"""Another user, a disk that is full, and storage that is read-only, for commands under test.

    user = OtherUser(folder)         a folder that another user owns
    user.run(words)                  the finished process of a command that this user runs
    disk = SmallDisk(folder, user)   a disk of 24 MB, mounted at folder/disk
    disk.fill()                      no byte is free, whatever is written there fails
    disk.read_only()                 nothing can be written there, not even by root

Where the tests run as root, the other user is uid 65534. Elsewhere it is the tests' own user, whom
permissions stop anyway.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
UID = 65534
IS_ROOT = os.geteuid() == 0
DISK_MB = 24
BLOCK = 4096

# A folder above the interpreter may be closed to others, as /root is. In a mount namespace of its
# own the child sees, in place of that folder, only the parts that it needs.
OPEN = """
set -e
closed=$1
stage=$(mktemp -d)
mount --rbind "$closed" "$stage"
mount -t tmpfs -o mode=755 tmpfs "$closed"
shift
while [ "$1" != -- ]; do
  mkdir -p "$1"
  mount --bind "$stage${1#"$closed"}" "$1"
  shift
done
umount --lazy "$stage"
rmdir "$stage"
shift
exec "$@"
"""


class OtherUser:
    """A user without root's rights, and a folder that belongs to this user."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.home = self.folder / "home"
        (self.folder / "tmp").mkdir(parents=True)
        self.home.mkdir()
        self.own(self.folder)
        self.prefix = list(prefix()) if IS_ROOT else []
        self.largest_file = None  # in bytes; None: as large as the disk lets it be
        if reason := cannot_run(self):
            pytest.skip(f"another user cannot run {sys.executable}: {reason}")

    def own(self, path):
        """Give a file, or a folder with everything in it, to this user; returns the path."""
        if IS_ROOT:
            for folder, folders, files in os.walk(path):
                for name in (folder, *(os.path.join(folder, name) for name in folders + files)):
                    os.chown(name, UID, UID, follow_symlinks=False)
            os.chown(path, UID, UID, follow_symlinks=False)
        return Path(path)

    def copy(self, source, name=None):
        """A copy of a file or folder in this user's folder."""
        source = Path(source)
        target = self.folder / (name or source.name)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        return self.own(target)

    def environment(self, **changes):
        """Nothing of the tests' own home; the package comes from this tree."""
        own = ("ZOEREFINE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR")
        env = {key: value for key, value in os.environ.items() if key not in own}
        env |= {"HOME": str(self.home), "TMPDIR": str(self.folder / "tmp"), "USER": "nobody"}
        env |= {"PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"}
        env |= {"ZOEREFINE_TRUSTED": str(self.folder / "trusted.txt")}
        return env | changes

    def command(self, words):
        """The words of a command that the tests start and this user runs."""
        limit = [] if self.largest_file is None else ["prlimit", f"--fsize={self.largest_file}"]
        return [*self.prefix, *limit, *map(str, words)]

    def run(self, words, cwd=None, env=None, timeout=300):
        """Run a command to its end, in this user's folder or in `cwd`."""
        return subprocess.run(
            self.command(words),
            cwd=cwd or self.folder,
            env=self.environment(**(env or {})),
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def start(self, words, cwd=None, env=None, **options):
        """Start a command."""
        env = self.environment(**(env or {}))
        return subprocess.Popen(self.command(words), cwd=cwd or self.folder, env=env, **options)


class SmallDisk:
    """A disk of a few MB of another user's. `close` removes it with what is on it.

    Without the right to mount it is a folder: a full disk is then a limit on the size of files, and
    read-only storage is folders and files without permission to write.
    """

    def __init__(self, folder, user):
        self.path = Path(folder) / "disk"
        self.path.mkdir()
        self.user = user
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "tmpfs", str(self.path)]
        self.is_mounted = IS_ROOT and not subprocess.run(words, capture_output=True).returncode
        user.own(self.path)

    def fill(self, free=0):
        """Fill the disk, except for so many bytes (rounded up to blocks)."""
        if not self.is_mounted:
            self.user.largest_file = free
            return
        with open(self.path / ".fill", "ab", buffering=0) as file:
            with suppress(OSError):
                while True:
                    file.write(b"\0" * BLOCK)
            file.truncate(max(0, file.tell() - free) // BLOCK * BLOCK)

    def read_only(self):
        """Make everything on the disk read-only."""
        self._allow_writing(False)

    def make_room(self):
        """Undo `fill` and `read_only`."""
        self._allow_writing(True)
        self.user.largest_file = None
        (self.path / ".fill").unlink(missing_ok=True)

    def clear(self):
        """Remove everything on it."""
        self.make_room()
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def close(self):
        """Unmount it."""
        self.clear()
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def _allow_writing(self, allowed):
        if self.is_mounted:
            how = "remount,rw" if allowed else "remount,ro"
            subprocess.run(["mount", "-o", how, str(self.path)], check=True)
        else:
            subprocess.run(["chmod", "-R", "u+w" if allowed else "a-w", str(self.path)], check=True)


@cache
def prefix():
    """The words before a command that make another user of root run it."""
    if missing := [name for name in ("setpriv", "unshare", "mount") if not shutil.which(name)]:
        pytest.skip(f"{', '.join(missing)} is missing: apt install util-linux mount")
    words = []
    needed = {}
    for path in {os.path.realpath(sys.base_prefix), sys.prefix, str(CHECKOUT)}:
        closed = [one for one in Path(path).parents if not one.stat().st_mode & 0o001]
        if closed:  # the highest one hides all below it
            needed.setdefault(str(closed[-1]), []).append(path)
    for folder, paths in needed.items():
        words += ["sh", "-c", OPEN, "sh", folder, *sorted(paths), "--"]
    as_user = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--"]
    return ["unshare", "--mount", "--", *words, *as_user] if words else as_user


_reasons: list[str] = []


def cannot_run(user):
    """Why the other user cannot run this interpreter with the package; empty if it can."""
    if not _reasons:
        words = [sys.executable, "-c", "import numpy, yaml, zoerefine"]
        _reasons.append(user.run(words).stderr.strip())
    return _reasons[0]
