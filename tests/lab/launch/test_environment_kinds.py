"""Virtual environments of every kind: once for a lock file, whole after a kill, and equal."""

import functools
import hashlib
import http.server
import json
import os
import shutil
import signal
import threading

import pytest

from tests.lab.launch import local_packages
from tests.processes import end_of
from zoerefine.base.files.file_lock import is_locked
from zoerefine.lab.launch.record.show import launch_command

pytestmark = pytest.mark.usefixtures("empty_cache")
PROJECT = local_packages.project("dependencies = ['tinything==1.0']\n")


@pytest.fixture
def gate(tmp_path):
    """The file for which the build of the package waits."""
    local_packages.make_gated_source(tmp_path / "sources", tmp_path / "gate")
    return tmp_path / "gate"


@pytest.fixture
def gated(gate, commit_with, tmp_path):
    """A commit that needs this package."""
    return commit_with("requirements.lock", local_packages.requirements(tmp_path / "sources"))


@local_packages.kinds
def test_two_launches_at_once_make_one_environment(
    launch, gate, gated, home, tmp_path, wait_until, kind
):
    words = ("--environment", kind, "--module", "uses.py", "KEY")
    both = [launch(*words, n, commit=gated, background=True) for n in "12"]
    wait_until((tmp_path / "gate.builds").exists)
    gate.touch()
    for running in both:
        out, _ = end_of(running)
        assert f"tinything 1.0 {home}/environments/" in out
    assert (tmp_path / "gate.builds").read_text() == "built\n"


@local_packages.kinds
def test_after_a_kill_nothing_writes_into_the_next_environment(
    launch, gate, gated, home, tmp_path, wait_until, kind
):
    words = ("--environment", kind, "--module", "uses.py")
    killed = launch(*words, commit=gated, background=True)
    wait_until((tmp_path / "gate.builds").exists)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    (half_made,) = local_packages.environments(home)
    assert is_locked(half_made.with_name(f"{half_made.name}.lock"))  # by the installing process
    (half_made / "stale").touch()
    gate.touch()
    assert "tinything 1.0" in launch(*words, commit=gated).stdout
    assert not (half_made / "stale").exists()


@local_packages.needs_uv
def test_each_lock_file_gives_the_digest_of_the_venv_kind(
    launch, commit_with, repository, wheels, tmp_path
):
    wheel = local_packages.make_wheel(wheels, "1.0")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    commits = {
        "requirements.lock": commit_with("requirements.lock", local_packages.requirements(wheels))
    }
    commits["pylock.toml"] = commit_with("pylock.toml", local_packages.pylock(wheel, digest))
    local_packages.lock_project(repository.folder, PROJECT + local_packages.index_of(wheels))
    commits["uv.lock"] = commit_with()
    digests = set()
    jobs = [("venv", "requirements.lock"), *(("uv", name) for name in commits)]
    for kind, name in jobs:
        words = ("--environment", kind, "--module", "uses.py", "--name", f"{kind}-{name}")
        assert f"installing {name} into" in launch(*words, commit=commits[name]).stderr
        (record,) = (tmp_path / "runs" / f"{kind}-{name}").glob("[0-9a-f]*/provenance.json")
        digests.add(json.loads(record.read_text())["environment_digest"])
    assert len(digests) == 1
    status = repository.git("status", "--porcelain")
    assert status == ""


@local_packages.needs_uv
def test_uv_takes_packages_from_its_cache_without_the_index(launch, commit_with, home, tmp_path):
    local_packages.make_wheel(tmp_path / "index" / "tinything", "1.0")
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "index")
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        commit = commit_with("requirements.lock", f"--index-url {url}\ntinything==1.0\n")
        words = ("--environment", "uv", "--module", "uses.py", "KEY")
        launch(*words, "1", commit=commit)
        server.shutdown()
    (environment,) = local_packages.environments(home)
    shutil.rmtree(environment)
    assert "tinything 1.0" in launch(*words, "2", commit=commit).stdout


def test_uv_that_is_not_installed_is_refused_in_one_line(launch, home, tmp_path):
    missing = "import sys; sys.modules['uv'] = None\n"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(missing)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    failed = launch("--environment", "uv", env={"PYTHONPATH": path}, code=2)
    (line,) = failed.stderr.splitlines()
    assert "--environment uv needs uv: pip install 'zoerefine[uv]'" in line
    assert not (tmp_path / "runs").exists()


@local_packages.needs_uv
def test_the_shown_command_of_a_run_states_its_kind(launch, commit_with, wheels, only_run):
    local_packages.make_wheel(wheels, "1.0")
    commit = commit_with("requirements.lock", local_packages.requirements(wheels))
    launch("--environment", "uv", "--module", "uses.py", commit=commit)
    run = only_run()
    command = launch_command(run, json.loads(run.provenance_file.read_text()))
    assert "--environment=uv" in command
