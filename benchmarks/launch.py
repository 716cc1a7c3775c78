"""Time from a launch's command to the first line of the user's code, and what a workspace costs.

Sides, interleaved in one run, on one repository behind one `git daemon`: our first launch of a
commit (nothing is there yet), our second, plain `git clone && git checkout`, `mlflow run` (in a
virtual environment of its own, kept for the next time), and the script alone: its own start-up.
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

from common.report import Row, options, report, row

from zoerefine.launch.housekeeping import size
from zoerefine.launch.launcher import default_home
from zoerefine.progress import say, track

LAUNCHER = Path(__file__).resolve().parents[1] / "platform" / "run_from_commit.py"
FILES, COMMITS = 2000, 500
MLFLOW = "mlflow-skinny==3.17.2"
TIMES_MLFLOW, OVER_SCRIPT_S, OF_A_CLONE = 5.0, 0.5, 1.0
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
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        root = Path(folder)
        commits = make_repository(root / "served" / "project")
        with served(root / "served") as url:
            rows = Sides(root, f"{url}/project", commits, install_mlflow()).measure(
                rounds=5 if args.quick else 15
            )
    report(rows, args.json)


def make_repository(folder: Path) -> list[str]:
    """A repository of so many files and commits, an MLproject among them; its commits."""
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
    """A text as git fast-import wants it."""
    return f"data {len(text.encode())}\n{text}\n"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder's repositories behind a git:// URL."""
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


def install_mlflow() -> Path | None:
    """The mlflow program in an environment of its own; None where it cannot be installed."""
    folder = default_home() / "benchmarks" / MLFLOW
    program = folder / "bin" / "mlflow"
    if not (folder / ".ready").exists():
        say(f"installing {MLFLOW} into {folder}, once")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", MLFLOW]
        if subprocess.run(pip, stderr=subprocess.DEVNULL, check=False).returncode:
            say("mlflow cannot be installed here: its rows are left out")
            return None
        (folder / ".ready").touch()
    return program


class Sides:
    """The ways to get from a commit to running code; each gives seconds and the parent's kB."""

    def __init__(self, root: Path, url: str, commits: list[str], mlflow: Path | None) -> None:
        self.root, self.url, self.commits, self.mlflow = root, url, commits, mlflow
        self.stamp = root / "stamp"
        self.count = 0
        (root / "job.yaml").write_text("KEY: 1\n")

    def measure(self, rounds: int) -> list[Row]:
        """Medians of interleaved rounds, their ratios, and sizes on disk."""
        sides: dict[str, Callable[[], None]] = {
            "the script alone": self.alone,
            "first launch": self.first,
            "second launch": self.second,
            "clone and checkout": self.clone,
        }
        if self.mlflow:
            sides["mlflow run"] = self.run_mlflow
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
        rows = [row(name, value, "s") for name, value in median.items()]
        second = median["second launch"]
        if self.mlflow:
            faster = median["mlflow run"] / second
            rows.append(
                row("second launch, times as fast as mlflow run", faster, "x", TIMES_MLFLOW)
            )
        over = second - median["the script alone"]
        rows.append(
            row("second launch, over the script's own start-up", over, "s", at_most=OVER_SCRIPT_S)
        )
        share = median["first launch"] / median["clone and checkout"]
        rows.append(row("first launch, of clone and checkout", share, "x"))
        for name in ("second launch", "mlflow run"):
            if name in memory:
                launcher = statistics.median(memory[name])
                rows.append(row(f"{name}: memory of the launcher", launcher, "MB"))
        return rows + self.disk()

    def time(self, side: Callable[[], None]) -> tuple[float, float]:
        """Seconds from the command to the script's first line, and its parent's memory in kB."""
        self.stamp.unlink(missing_ok=True)
        start = time.time()
        side()
        began, kilobytes = map(float, self.stamp.read_text().split())
        return began - start, kilobytes

    def run(self, *words: str | Path, folder: Path | None = None, **variables: str) -> None:
        """Run a command to its end, quietly."""
        variables |= {"BENCHMARK_STAMP": str(self.stamp)}
        done = subprocess.run(
            [*map(str, words)],
            cwd=folder or self.root,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stderr}")

    def alone(self) -> None:
        if not (self.root / "alone").exists():
            self.run("git", "clone", "-q", self.url, self.root / "alone")
        self.run(sys.executable, "job.py", folder=self.root / "alone")

    def launch(self, home: Path) -> None:
        self.count += 1
        words = ("--repo", self.url, "--commit", self.commits[-2], "--home", home)
        job = ("--config", "job.yaml", "--module", "job.py", "KEY", str(self.count))
        self.run(sys.executable, LAUNCHER, *words, *job)

    def clear(self, name: str) -> None:
        """Remove what a side makes anew each time."""
        old = {"first launch": "home", "clone and checkout": "clone"}.get(name)
        if old:
            shutil.rmtree(self.root / old, ignore_errors=True)

    def first(self) -> None:
        self.launch(self.root / "home")

    def second(self) -> None:
        self.launch(self.root / "home")

    def clone(self) -> None:
        place = self.root / "clone"
        git = f"git clone -q {self.url} {place} && cd {place} && git checkout -q {self.commits[-2]}"
        self.run("bash", "-c", f"{git} && exec {sys.executable} job.py")

    def run_mlflow(self) -> None:
        store = {"MLFLOW_TRACKING_URI": f"file://{self.root}/mlruns"}
        choices = ("--version", self.commits[-2], "--env-manager", "local")
        variables = store | {"MLFLOW_ALLOW_FILE_STORE": "true", "GIT_PYTHON_REFRESH": "quiet"}
        assert self.mlflow is not None
        self.run(self.mlflow, "run", self.url, *choices, **variables)

    def disk(self) -> list[Row]:
        """What one more workspace takes, against a clone and against the files themselves."""
        (workspace,) = (self.root / "home" / "workspaces").glob("*/*.0")
        extra, clone = size(workspace), size(self.root / "clone")
        files = clone - size(self.root / "clone" / ".git")
        rows = [row("disk of an extra workspace", extra / 2**20, "MB")]
        rows.append(row("disk of its files alone", files / 2**20, "MB"))
        return [
            *rows,
            row("disk of an extra workspace, of a clone", extra / clone, "x", at_most=OF_A_CLONE),
        ]


if __name__ == "__main__":
    main()
