"""Time from the launch command to the first line of the user's script, and disk space.

Measured in turn, on one repository behind one `git daemon`: our first launch of a commit (with an
empty cache), our second, plain `git clone && git checkout`, `mlflow run` (installed once in its own
virtual environment), and the script alone. With --before also the second launch by another checkout
of this project, such as a worktree of an older commit. Then 1,000 files that a job left in its
workspace are collected into its run, beside a plain copy of them with `cp`, and a study of a
one-second script runs beside the script.
"""

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from common.machine import of_installed_commands
from common.mlflow_program import NOT_INSTALLED, STORE_VARIABLES, install_mlflow
from common.report import Row, left_out, options, ratios, report, row
from common.trials import trial_rows

from zoerefine.base.files.atomic import bytes_on_disk
from zoerefine.base.progress import track
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.workspace.left import collect

CHECKOUT = Path(__file__).resolve().parents[1]
BEFORE = "second launch by the other checkout"
FILES, COMMITS = 2000, 500
LEFT_FILES, LEFT_BYTES = 1000, 20_000
GOALS_S = {"second launch": 0.25}
TIMES_MLFLOW, OVER_SCRIPT_S, OF_A_CLONE, OF_BEFORE = 5.0, 0.5, 1.0, 1.1
SCRIPT = """
import time
began = time.time()
import os
from pathlib import Path
memory = [x for x in Path(f"/proc/{os.getppid()}/status").read_text().splitlines() if "VmHWM" in x]
Path(os.environ["BENCHMARK_STAMP"]).write_text(f"{began} {memory[0].split()[1]}")
"""


def main() -> None:
    """Print the table, and write it where asked."""
    parser = options(__doc__)
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another checkout")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        root = Path(folder)
        commits = make_repository(root / "served" / "project")
        with served(root / "served") as url:
            sides = Sides(root, f"{url}/project", commits, install_mlflow(), args.before)
            rows = sides.measure(rounds=5 if args.quick else 15)
        rows += trial_rows(root / "trials", args.quick)
    report(rows, args)


def make_repository(folder: Path) -> list[str]:
    """Make a repository with FILES files and COMMITS commits; returns its commits."""
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    project = f"name: x\nentry_points:\n  main:\n    command: {sys.executable} job.py\n"
    files = {"job.py": SCRIPT, "MLproject": project, "input.yaml": "KEY: 1\n"}
    for number in range(FILES - len(files)):
        text = "".join(f"def f{number}_{line}(): return {line * number}\n" for line in range(60))
        files[f"package{number % 40}/module{number}.py"] = text
    stream = []
    for commit in range(COMMITS):
        who = f"committer A <a> {commit} +0000"
        stream.append(f"commit refs/heads/main\n{who}\n{data(str(commit))}")
        changed = files if commit == 0 else {f"package{commit % 40}/module{commit}.py": str(commit)}
        stream += [f"M 100644 inline {name}\n{data(text)}" for name, text in changed.items()]
    command = ["git", "fast-import", "--quiet"]
    subprocess.run(command, cwd=folder, input="".join(stream).encode(), check=True)
    listing = ["git", "rev-list", "--reverse", "main"]
    return subprocess.run(
        listing, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()


def data(text: str) -> str:
    """A text in git fast-import's format."""
    return f"data {len(text.encode())}\n{text}\n"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder's repositories; yields their git:// URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = ("--listen=127.0.0.1", f"--port={port}", f"--base-path={folder}")
    command = ["git", "daemon", "--export-all", "--reuseaddr", *where, str(folder)]
    daemon = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
        yield f"git://127.0.0.1:{port}"
    finally:
        os.killpg(daemon.pid, 15)
        daemon.wait()


class Sides:
    """The ways from a commit to running code that are compared."""

    def __init__(
        self, root: Path, url: str, commits: list[str], mlflow: Path | None, before: Path | None
    ) -> None:
        self.root, self.url, self.commits, self.mlflow = root, url, commits, mlflow
        self.before = before and before.absolute()
        self.stamp = root / "stamp"
        self.count = 0
        (root / "job.yaml").write_text("KEY: 1\n")

    def measure(self, rounds: int) -> list[Row]:
        """Medians over interleaved rounds, their ratios, and sizes on disk."""
        sides: dict[str, Callable[[], None]] = {
            "the script alone": self.script_only,
            "first launch": self.first,
            "second launch": self.second,
            "clone and checkout": self.clone,
        }
        if self.mlflow:
            sides["mlflow run"] = self.run_mlflow
        if self.before:
            sides[BEFORE] = self.second_before
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        memory: dict[str, list[float]] = {name: [] for name in sides}
        for number in track(range(rounds + 1), rounds + 1, "measuring", "round"):
            for name, side in sides.items():
                self.clear(name)
                took, kilobytes = self.time(side)
                if number:  # the first round warms everything up
                    seconds[name].append(took)
                    memory[name].append(kilobytes / 1024)
        median = {name: statistics.median(values) for name, values in seconds.items()}
        rows = [
            row(name, value, "s", at_most=GOALS_S.get(name), rounds=seconds[name])
            for name, value in median.items()
        ]
        second = median["second launch"]
        if self.mlflow is None:
            rows.append(left_out("mlflow run", NOT_INSTALLED))
        else:
            what = "second launch, speed relative to mlflow run"
            faster = ratios(seconds["mlflow run"], seconds["second launch"])
            value = statistics.median(faster)
            rows.append(row(what, value, "x", TIMES_MLFLOW, rounds=faster))
        over = second - median["the script alone"]
        rows.append(
            row("second launch, time added to the script alone", over, "s", at_most=OVER_SCRIPT_S)
        )
        if self.before:
            share = second / median[BEFORE]
            rows.append(row(f"second launch, relative to {BEFORE}", share, "x", at_most=OF_BEFORE))
        share = median["first launch"] / median["clone and checkout"]
        rows.append(row("first launch, relative to clone and checkout", share, "x"))
        for name in ("second launch", "mlflow run"):
            if name in memory:
                launcher = statistics.median(memory[name])
                rows.append(row(f"{name}: memory of the launcher", launcher, "MB"))
        return rows + self.disk() + self.left(rounds)

    def time(self, side: Callable[[], None]) -> tuple[float, float]:
        """Seconds from the command to the script's first line, and the launcher's memory in kB."""
        self.stamp.unlink(missing_ok=True)
        start = time.time()
        side()
        began, kilobytes = map(float, self.stamp.read_text().split())
        return began - start, kilobytes

    def run(self, *words: str | Path, folder: Path | None = None, **variables: str) -> None:
        """Run a command to its end; ends the benchmark where it fails."""
        variables |= {"BENCHMARK_STAMP": str(self.stamp)}
        done = subprocess.run(
            [*map(str, words)],
            cwd=folder or self.root,
            env=of_installed_commands(self.root / "pycache") | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stderr}")

    def script_only(self) -> None:
        if not (self.root / "alone").exists():
            self.run("git", "clone", "-q", self.url, self.root / "alone")
        self.run(sys.executable, "job.py", folder=self.root / "alone")

    def launch(self, home: Path, checkout: Path = CHECKOUT) -> None:
        self.count += 1
        words = ("--repo", self.url, "--commit", self.commits[-2], "--home", home)
        job = ("--config", "job.yaml", "--module", "job.py", "KEY", str(self.count))
        self.run(sys.executable, checkout / "platform" / "run_from_commit.py", *words, *job)

    def clear(self, name: str) -> None:
        """Remove what a side must make again each time."""
        old = {"first launch": "home", "clone and checkout": "clone"}.get(name)
        if old:
            shutil.rmtree(self.root / old, ignore_errors=True)

    def first(self) -> None:
        self.launch(self.root / "home")

    def second(self) -> None:
        self.launch(self.root / "home")

    def second_before(self) -> None:
        assert self.before is not None
        self.launch(self.root / "home-before", self.before)

    def clone(self) -> None:
        place = self.root / "clone"
        git = f"git clone -q {self.url} {place} && cd {place} && git checkout -q {self.commits[-2]}"
        self.run("bash", "-c", f"{git} && exec {sys.executable} job.py")

    def run_mlflow(self) -> None:
        variables = STORE_VARIABLES | {"MLFLOW_TRACKING_URI": f"file://{self.root}/mlruns"}
        choices = ("--version", self.commits[-2], "--env-manager", "local")
        assert self.mlflow is not None
        self.run(self.mlflow, "run", self.url, *choices, folder=None, **variables)

    def disk(self) -> list[Row]:
        """The disk space of one more workspace, compared with a clone and with its files."""
        (workspace,) = (self.root / "home" / "workspaces").glob("*/*.0")
        extra, clone = bytes_on_disk(workspace), bytes_on_disk(self.root / "clone")
        files = clone - bytes_on_disk(self.root / "clone" / ".git")
        rows = [row("disk of an extra workspace", extra / 2**20, "MB")]
        rows.append(row("disk of its files alone", files / 2**20, "MB"))
        return [
            *rows,
            row(
                "disk of an extra workspace, relative to a clone",
                extra / clone,
                "x",
                at_most=OF_A_CLONE,
            ),
        ]

    def left(self, rounds: int) -> list[Row]:
        """Collecting what a job left in its workspace, compared with copying it."""
        (workspace,) = (self.root / "home" / "workspaces").glob("*/*.0")
        seconds: dict[str, list[float]] = {"collect": [], "copy": []}
        for number in range(rounds + 1):
            run = RunDir(self.root / "left" / str(number))
            run.create()
            for index in range(LEFT_FILES):
                path = workspace / "output" / str(index % 50) / f"{index}.bin"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(os.urandom(LEFT_BYTES))
            start = time.perf_counter()
            self.run("cp", "-a", workspace / "output", self.root / "left" / f"copy{number}")
            copied = time.perf_counter()
            collect(run, workspace)
            collected = time.perf_counter()
            if number:  # the first round warms everything up
                seconds["copy"].append(copied - start)
                seconds["collect"].append(collected - copied)
        median = {name: statistics.median(values) for name, values in seconds.items()}
        share = median["collect"] / median["copy"]
        what = f"collecting {LEFT_FILES} left files"
        return [row(what, median["collect"], "s"), row(f"{what}, relative to cp -a", share, "x")]


if __name__ == "__main__":
    main()
