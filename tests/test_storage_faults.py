"""Every command on a disk that is full, read-only or closed, and without a home folder.

A command that cannot write says so in one line, and leaves nothing half-written: once there is
room, the same command succeeds. A command that only reads works all the same.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.depth_fixtures import TINY
from tests.machine_faults import CHECKOUT, OtherUser, SmallDisk
from tests.verb_server import server_of_user
from zoerefine.depth.data.layouts.habitatdyn import RGB, ZOE

WORLD = ("--clips", "1", "--height", "48", "--width", "64")
JOB = """
import json, os
open("out.txt", "w").write("x" * 9999)
json.dump({"loss": 1.0}, open(os.environ["ZOEREFINE_RUN_FOLDER"] + "/results.json", "w"))
"""
COMMIT = """
set -e
git init -q "$1"
cd "$1"
cat > job.py
echo 'A: 1' > job.yaml
git add -A
git -c user.name=a -c user.email=a@b.c commit -qm one
"""
NO_HOME = {"HOME": "/nonexistent/home"}

# Words with {names} of `Machine.places`. Each writes to the current folder, which is on the disk.
WRITERS = {
    "train": "train --config {config}",
    "pack": "data pack --config {config} CACHE.ROOT caches",
    "synthesize": "data synthesize new --scenes 2 --frames 2 --clips 1 --height 48 --width 64",
    "inspect with a picture": "data inspect {world} --picture sheet.png",
    "points": "data points {world} --out points",
    "split": "data split {world} --out split.json",
    "export": "export runs/tiny/one --engine torchscript --precision fp32",
    "infer": "infer {bundle} --rgb {rgb} --depth {zoe} --out out",
    "analyze": "analyze {run} --out report",
    "search": "search --config {search}",
    "check": "check --config {config} --limit 1",
    "run": "run --repo {repo} --commit HEAD --module job.py --config {repo}/job.yaml",
    "reproduce": "reproduce {launched}",
    "profile": "profile --config {config} --steps 2",
    "zoedepth": "data pseudo bare --model {model}",
}
READERS = {
    "show a run": "show {run}",
    "show a bundle": "show {bundle}",
    "diff": "diff {run} {launched}",
    "config": "config --config {config}",
    "doctor": "doctor",
    "inspect": "data inspect {world}",
    "verify": "data verify {caches}",
    "dashboard": "dashboard {run} --port 0",
    "infer": "infer {bundle} --rgb {rgb} --depth {zoe} --out {out}/out",
    "analyze": "analyze {run} --out {out}/report",
    "train with its cache": "train --config {config} RUN.ROOT {out}/runs",
}


class Machine:
    """A user, a small disk, a server of commands, and what they need: data, a run, a bundle."""

    def __init__(self, folder):
        self.user = OtherUser(folder / "user")
        self.disk = SmallDisk(self.user.folder, self.user)
        self.server = server_of_user(self.user)
        home = self.user.folder
        self.places = {"config": home / "tiny.yaml", "search": home / "search.yaml",
                       "world": home / "world", "rgb": home / "world" / RGB,
                       "zoe": home / "world" / ZOE, "repo": home / "repo",
                       "caches": home / "caches", "model": home / "model"}  # fmt: skip
        tiny = TINY.replace("EPOCHS: 2", "EPOCHS: 1, CALIBRATE: false, PICTURES: 0")
        tiny = tiny.replace("DATA: {", f"DATA: {{ROOT: {home}/world, ")
        tiny = tiny.replace("CACHE: {", f"CACHE: {{ROOT: {home}/caches, ")
        self.write("tiny.yaml", tiny)
        self.write("search.yaml", tiny + "SEARCH: {TRAIN: {LR: [0.001, 0.002]}}\n")
        self.made("data", "synthesize", "world", "--scenes", "4", "--frames", "2", *WORLD)
        self.places["run"] = self.made("train", "--config", "tiny.yaml")
        self.places["bundle"] = self.made(
            "export", self.places["run"], "--engine", "torchscript", "--precision", "fp32"
        )
        commit = self.user.command(["sh", "-c", COMMIT, "sh", home / "repo"])
        env = self.user.environment()
        subprocess.run(commit, cwd=home, env=env, input=JOB, text=True, check=True)
        self.places["launched"] = self.made(*self.words(WRITERS["run"]))

    def write(self, name, text):
        (self.user.folder / name).write_text(text)
        self.user.own(self.user.folder / name)

    def made(self, *words):
        """The path that a command prints last."""
        done = self.server.run(words, cwd=self.user.folder)
        assert done.code == 0, done.err
        return self.user.folder / done.out.splitlines()[-1]

    def words(self, command, **places):
        """The words of a command of the tables above."""
        return command.format(**self.places, **places).split()

    def run(self, command, cwd, stop_at="", **places):
        words = self.words(command, **places)
        limit = self.user.largest_file
        return self.server.run(words, cwd, NO_HOME_OF.get(command), stop_at, limit)


# `run` and `reproduce` keep mirrors and workspaces in the home; they cannot work without one.
NO_HOME_OF = {
    command: NO_HOME for name, command in WRITERS.items() if name not in ("run", "reproduce")
} | {command: NO_HOME for command in READERS.values()}


@pytest.fixture(scope="module")
def machine():
    with tempfile.TemporaryDirectory(prefix="zoerefine-faults-") as folder:
        os.chmod(folder, 0o755)
        made = Machine(Path(folder))
        yield made
        made.server.close()
        made.disk.close()


@pytest.fixture
def work(machine):
    """A folder on the small disk, with a run that can be exported or reproduced."""
    machine.disk.clear()
    folder = machine.disk.path / "work"
    shutil.copytree(machine.places["run"], folder / "runs" / "tiny" / "one", symlinks=True)
    shutil.rmtree(folder / "runs" / "tiny" / "one" / "engine")
    machine.user.own(folder)
    yield folder
    machine.disk.make_room()
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def files(folder):
    """Every path below a folder, with its size."""
    found = (path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}


def check_one_line(done):
    """It failed, and the last line says why."""
    assert done.code > 0, done.out
    lines = done.err.strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert "Traceback" not in done.err, done.err
    assert len(errors) == 1 and lines[-1] == errors[0], done.err


@pytest.fixture
def writer(request, machine, work):
    """Puts what a command writes beside on the disk: writer(name) -> the command."""

    def prepare(name):
        if name == "reproduce":
            launched = work / "runs" / machine.places["launched"].relative_to(machine.user.folder)
            shutil.copytree(machine.places["launched"], launched)
        elif name == "zoedepth":
            if not machine.places["model"].exists():
                machine.user.copy(request.getfixturevalue("small_zoedepth"), "model")
            without_depth = shutil.ignore_patterns(ZOE)
            shutil.copytree(machine.places["world"], work / "bare", ignore=without_depth)
        machine.user.own(work)
        return f"reproduce {launched}" if name == "reproduce" else WRITERS[name]

    return prepare


@pytest.mark.parametrize("fault", ["read_only", "no_permission"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_cannot_be_written_is_one_line(machine, work, writer, name, fault):
    command = writer(name)
    before = files(work)
    if fault == "read_only":
        machine.disk.read_only()
    else:
        subprocess.run(["chmod", "-R", "a-w", work], check=True)
    check_one_line(machine.run(command, work))
    assert files(work) == before


@pytest.mark.parametrize("free", [0, 20_000])
@pytest.mark.parametrize("name", [name for name in WRITERS if name not in ("check", "reproduce")])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(machine, work, writer, name, free):
    command = writer(name)
    machine.disk.fill(free)
    done = machine.run(command, work)
    half_written = [path for path in files(work) if path.endswith((".tmp", ".old"))]
    assert not half_written
    if done.code == 0:  # it needed less than that
        assert free
        return
    check_one_line(done)
    if free and name != "search":  # takes many seconds
        machine.disk.make_room()
        again = machine.run(command, work)
        assert again.code == 0, again.err


def test_a_full_disk_while_a_checkpoint_is_written_is_one_line(machine, work):
    machine.disk.fill(150_000)
    done = machine.run(WRITERS["train"], work)
    check_one_line(done)
    assert "/checkpoints" in done.err
    machine.disk.make_room()
    assert machine.run(WRITERS["train"], work).code == 0


@pytest.mark.parametrize("name", READERS)
def test_runs_caches_and_bundles_are_used_from_read_only_storage(machine, work, name, tmp_path):
    shutil.copytree(machine.user.folder / "caches", work / "caches")
    places = machine.places | {"run": work / "runs" / "tiny" / "one", "caches": work / "caches"}
    shutil.copytree(machine.places["run"] / "engine", places["run"] / "engine")
    places["bundle"] = places["run"] / "engine" / machine.places["bundle"].name
    text = machine.places["config"].read_text()
    places["config"] = work / "tiny.yaml"
    places["config"].write_text(text.replace(f"{machine.user.folder}/caches", f"{work}/caches"))
    machine.user.own(work)
    machine.disk.read_only()
    out = machine.user.folder / f"out of {name}".replace(" ", "_")
    out.mkdir()
    machine.user.own(out)
    words = READERS[name].format(**places, out=out).split()
    stop_at = "http" if name == "dashboard" else ""
    done = machine.server.run(words, work, NO_HOME, stop_at)
    assert done.code == 0, done.err


@pytest.mark.parametrize("name", ["verify", "show a run", "inspect", "config"])
def test_what_only_reads_works_on_a_full_disk(machine, work, name):
    machine.disk.fill()
    done = machine.run(READERS[name], work)
    assert done.code == 0, done.err


# What is closed: a place, or a folder on the disk.
CLOSED = {
    "pack": "config",
    "profile": "config",
    "infer": "bundle",
    "verify": "caches",
    "split": "world",
    "inspect": "world",
    "export": "runs/tiny/one",
    "zoedepth": "bare",
}


@pytest.mark.parametrize("name", CLOSED)
def test_a_folder_that_cannot_be_read_is_one_line(machine, work, writer, name):
    command = writer(name) if name in WRITERS else READERS[name]
    path = machine.places.get(CLOSED[name]) or work / CLOSED[name]
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        check_one_line(machine.run(command, work))
    finally:
        path.chmod(mode)


def test_the_demo_on_a_read_only_disk_says_so(machine, work):
    tree = work / "tree"
    for name in ("zoerefine", "platform", "configs"):
        shutil.copytree(CHECKOUT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / ".git").mkdir()
    machine.user.own(tree)
    machine.disk.read_only()
    words = [sys.executable, "-m", "zoerefine", "demo"]
    done = machine.user.run(words, cwd=tree, env={"PYTHONPATH": str(tree)})
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Read-only file system" in done.stderr or "Permission denied" in done.stderr


def test_a_result_that_cannot_be_printed_is_one_line(machine):
    with open("/dev/full", "wb") as full:
        words = [sys.executable, "-m", "zoerefine", "show", machine.places["run"]]
        env = machine.user.environment()
        done = subprocess.run(machine.user.command(words), stdout=full, stderr=subprocess.PIPE,
                              text=True, env=env, cwd=machine.user.folder)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: No space left on device")
    assert len(done.stderr.splitlines()) == 1
