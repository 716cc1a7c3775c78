"""Time to make a job's virtual environment: `--environment venv` beside `--environment uv`.

Both kinds install the same lock file, in turns: of 30 wheels made here (no network is used), or the
one that --lock names. "Again" is a second environment of the same packages, when they are in the
caches. uv's cache starts empty; pip's is the user's own.
"""

import os
import shutil
import statistics
import tempfile
import time
import zipfile
from pathlib import Path

from common.report import Row, options, report, row

from zoerefine.launch.environment import job_python
from zoerefine.launch.environment_build import check_environment
from zoerefine.launch.provenance import environment_digest

KINDS = ("venv", "uv")
PACKAGES, FILES, FILE_BYTES = 30, 200, 20_000
AGAIN_S = 5.0


def main() -> None:
    """Print the table, and write it where asked."""
    parser = options(__doc__)
    parser.add_argument("--lock", type=Path, metavar="FILE", help="a requirements.lock to install")
    args = parser.parse_args()
    check_environment("uv")
    with tempfile.TemporaryDirectory(prefix="environments-") as folder:
        root = Path(folder)
        os.environ["UV_CACHE_DIR"] = str(root / "uv-cache")
        workspace = root / "workspace"
        workspace.mkdir()
        text = args.lock.read_text() if args.lock else local_lock(root / "wheels")
        (workspace / "requirements.lock").write_text(text)
        rows = measure(workspace, root / "home", rounds=2 if args.quick else 7)
    report(rows, args.json)


def local_lock(folder: Path) -> str:
    """Make wheels of incompressible files; returns a lock file of them."""
    folder.mkdir()
    for number in range(PACKAGES):
        about = f"thing{number}-1.0"
        with zipfile.ZipFile(folder / f"{about}-py3-none-any.whl", "w") as wheel:
            for index in range(FILES):
                wheel.writestr(f"thing{number}/data{index}.bin", os.urandom(FILE_BYTES))
            wheel.writestr(f"thing{number}/__init__.py", "")
            named = f"Metadata-Version: 2.1\nName: thing{number}\nVersion: 1.0\n"
            wheel.writestr(f"{about}.dist-info/METADATA", named)
            tag = "Wheel-Version: 1.0\nGenerator: b\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{about}.dist-info/WHEEL", tag)
            wheel.writestr(f"{about}.dist-info/RECORD", "")
    lines = [f"thing{number}==1.0" for number in range(PACKAGES)]
    return "\n".join(["--no-index", f"--find-links {folder}", *lines]) + "\n"


def measure(workspace: Path, home: Path, rounds: int) -> list[Row]:
    """The first environment of each kind, medians of the later ones, and whether they are equal."""
    first: dict[str, float] = {}
    again: dict[str, list[float]] = {kind: [] for kind in KINDS}
    digests: set[str] = set()
    for number in range(rounds + 1):
        for kind in KINDS:
            shutil.rmtree(home, ignore_errors=True)
            start = time.perf_counter()
            with job_python(kind, workspace, "", home) as python:
                took = time.perf_counter() - start
                digests.add(environment_digest(python))
            if number:
                again[kind].append(took)
            else:
                first[kind] = took
    median = {kind: statistics.median(values) for kind, values in again.items()}
    return [
        *(row(f"{kind}: first environment", first[kind], "s") for kind in KINDS),
        row("venv: again", median["venv"], "s"),
        row("uv: again", median["uv"], "s", at_most=AGAIN_S),
        row("again, speed of uv relative to venv", median["venv"] / median["uv"], "x"),
        row("different digests of the environments", len(digests), "", at_least=1, at_most=1),
    ]


if __name__ == "__main__":
    main()
