"""Prints the test files of what changed since main: tests/ mirrors zoerefine/, file by file."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def changed_files() -> set[str]:
    """Paths that differ from main's last common commit, uncommitted and untracked ones included."""
    base = git("merge-base", "HEAD", "main") or ["HEAD"]
    untracked = git("ls-files", "--others", "--exclude-standard")
    return {*git("diff", "--name-only", base[0]), *untracked}


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def test_file(path: str) -> Path | None:
    """The test file of a changed file, if there is one."""
    changed = Path(path)
    if changed.suffix != ".py":
        return None
    if changed.parts[0] == "tests":
        found = changed if changed.name.startswith("test_") else None
    elif changed.parts[0] == "zoerefine":
        found = Path("tests", *changed.parts[1:]).with_name(f"test_{changed.name}")
    else:
        found = None
    return found if found and (ROOT / found).exists() else None


if __name__ == "__main__":
    found = {test_file(path) for path in changed_files()}
    print(*sorted(path.as_posix() for path in found if path))
