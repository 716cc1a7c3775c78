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

from tests.lab.launch.local_packages import (
    environments,
    index_of,
    kinds,
    lock_project,
    make_gated_source,
    make_wheel,
    needs_uv,
    project,
    pylock,
    requirements,
)
from zoerefine.base.files.locks import is_locked
from zoerefine.lab.launch.record.show import launch_command

pytestmark = pytest.mark.usefixtures("empty_cache")
PROJECT = project("dependencies = ['tinything==1.0']\n")


@kinds
def test_two_launches_at_once_make_one_environment(
    launch, commit_with, home, tmp_path, wait_until, kind
):
    gate = tmp_path / "gate"
    make_gated_source(tmp_path / "sources", gate)
    commit = commit_with("requirements.lock", requirements(tmp_path / "sources"))
    words = ("--environment", kind, "--module", "uses.py")
    both = [launch(*words, "KEY", n, commit=commit, background=True) for n in "12"]
    wait_until((tmp_path / "gate.builds").exists)
    gate.touch()
    for running in both:
        out, err = running.communicate(timeout=300)
        assert running.returncode == 0, err
        assert f"tinything 1.0 {home}/environments/" in out
    assert (tmp_path / "gate.builds").read_text() == "built\n"


@kinds
def test_after_a_kill_nothing_writes_into_the_next_environment(
    launch, commit_with, home, tmp_path, wait_until, kind
):
    gate = tmp_path / "gate"
    make_gated_source(tmp_path / "sources", gate)
    commit = commit_with("requirements.lock", requirements(tmp_path / "sources"))
    words = ("--environment", kind, "--module", "uses.py")
    killed = launch(*words, commit=commit, background=True)
    wait_until((tmp_path / "gate.builds").exists)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    (half_made,) = environments(home)
    assert is_locked(half_made.with_name(f"{half_made.name}.lock"))  # by the installing process
    (half_made / "stale").touch()
    gate.touch()
    done = launch(*words, commit=commit)
    assert done.returncode == 0, done.stderr
    assert "tinything 1.0" in done.stdout
    assert not (half_made / "stale").exists()


@needs_uv
def test_each_lock_file_gives_the_digest_of_the_venv_kind(
    launch, commit_with, repository, wheels, tmp_path
):
    wheel = make_wheel(wheels, "1.0")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    commits = {"requirements.lock": commit_with("requirements.lock", requirements(wheels))}
    commits["pylock.toml"] = commit_with("pylock.toml", pylock(wheel, digest))
    lock_project(repository.folder, PROJECT + index_of(wheels))
    commits["uv.lock"] = commit_with()
    digests = set()
    jobs = [("venv", "requirements.lock"), *(("uv", name) for name in commits)]
    for kind, name in jobs:
        words = ("--environment", kind, "--module", "uses.py", "--name", f"{kind}-{name}")
        done = launch(*words, commit=commits[name])
        assert done.returncode == 0, done.stderr
        assert f"installing {name} into" in done.stderr
        (record,) = (tmp_path / "runs" / f"{kind}-{name}").glob("[0-9a-f]*/provenance.json")
        digests.add(json.loads(record.read_text())["environment_digest"])
    assert len(digests) == 1
    status = repository.git("status", "--porcelain")
    assert status == ""


@needs_uv
def test_uv_takes_packages_from_its_cache_without_the_index(launch, commit_with, home, tmp_path):
    make_wheel(tmp_path / "index" / "tinything", "1.0")
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "index")
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        commit = commit_with("requirements.lock", f"--index-url {url}\ntinything==1.0\n")
        words = ("--environment", "uv", "--module", "uses.py", "KEY")
        done = launch(*words, "1", commit=commit)
        assert done.returncode == 0, done.stderr
        server.shutdown()
    (environment,) = environments(home)
    shutil.rmtree(environment)
    again = launch(*words, "2", commit=commit)
    assert again.returncode == 0, again.stderr
    assert "tinything 1.0" in again.stdout


def test_uv_that_is_not_installed_is_refused_in_one_line(launch, home, tmp_path):
    missing = "import sys; sys.modules['uv'] = None\n"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(missing)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    failed = launch("--environment", "uv", env={"PYTHONPATH": path})
    assert failed.returncode == 2
    (line,) = failed.stderr.splitlines()
    assert "--environment uv needs uv: pip install 'zoerefine[uv]'" in line
    assert not (tmp_path / "runs").exists()


@needs_uv
def test_the_shown_command_of_a_run_states_its_kind(launch, commit_with, wheels, only_run):
    make_wheel(wheels, "1.0")
    commit = commit_with("requirements.lock", requirements(wheels))
    assert launch("--environment", "uv", "--module", "uses.py", commit=commit).returncode == 0
    run = only_run()
    command = launch_command(run, json.loads(run.provenance_file.read_text()))
    assert "--environment=uv" in command
