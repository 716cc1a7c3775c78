"""Virtual environments of every kind: once for a lock file, whole after a kill, and equal."""

import functools
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec

import pytest

from tests.launch.local_packages import make_gated_source, make_wheel
from zoerefine.launch.environment_build import lock_file_digest
from zoerefine.launch.environment_uv import uv_program
from zoerefine.launch.show import launch_command
from zoerefine.locks import is_locked
from zoerefine.registries import ENVIRONMENTS

needs_uv = pytest.mark.skipif(
    find_spec("uv") is None, reason="uv is not installed: pip install 'zoerefine[uv]'"
)
kinds = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=needs_uv if kind == "uv" else ()) for kind in ENVIRONMENTS]
)
SCRIPT = "import sys, tinything; print('tinything', tinything.VERSION, sys.prefix)\n"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """uv keeps nothing from before."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))


@pytest.fixture
def wheels(tmp_path):
    return tmp_path / "wheels"


@pytest.fixture
def commit_with(repository):
    """Commit files and a script that imports the package: commit_with(name, text, ...)."""

    def commit(*files):
        for name, text in zip(files[::2], files[1::2], strict=True):
            (repository.folder / name).write_text(text)
        (repository.folder / "uses.py").write_text(SCRIPT)
        return repository.commit("three")

    return commit


def requirements(wheels, line="tinything==1.0"):
    return f"--no-index\n--find-links {wheels}\n{line}\n"


def project(wheels):
    settings = f"no-index = true\nfind-links = ['{wheels}']\n"
    about = "name = 'job'\nversion = '0'\nrequires-python = '>=3.11'\n"
    return f"[project]\n{about}dependencies = ['tinything==1.0']\n[tool.uv]\n{settings}"


def lock_project(folder, wheels):
    """Write pyproject.toml, and let uv write uv.lock; returns the latter's text."""
    (folder / "pyproject.toml").write_text(project(wheels))
    lock = [uv_program(), "lock", "--quiet", "--offline", "--python", sys.executable]
    subprocess.run(lock, cwd=folder, check=True)
    return (folder / "uv.lock").read_text()


def pylock(wheel, digest):
    facts = f"url = '{wheel.as_uri()}', hashes = {{ sha256 = '{digest}' }}"
    about = "name = 'tinything'\nversion = '1.0'\n"
    return (
        f"lock-version = '1.0'\ncreated-by = 't'\n[[packages]]\n{about}wheels = [{{ {facts} }}]\n"
    )


def environments(home):
    return [path for path in (home / "environments").iterdir() if path.is_dir()]


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
    lock_project(repository.folder, wheels)
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
@pytest.mark.parametrize("name", ["requirements.lock", "pylock.toml", "uv.lock"])
def test_uv_refuses_a_package_with_another_hash(
    launch, commit_with, repository, home, wheels, monkeypatch, name
):
    wheel = make_wheel(wheels, "1.0")
    wrong = "0" * 64
    texts = {
        "requirements.lock": requirements(wheels, f"tinything==1.0 --hash=sha256:{wrong}"),
        "pylock.toml": pylock(wheel, wrong),
    }
    if name == "uv.lock":  # uv records hashes of packages on servers only, but checks each one
        locked = lock_project(repository.folder, wheels)
        texts[name] = locked.replace(f'{wheel.name}"', f'{wheel.name}", hash = "sha256:{wrong}"')
    monkeypatch.setenv("UV_NO_VERIFY_HASHES", "1")
    commit = commit_with(name, texts[name])
    failed = launch("--environment", "uv", "--module", "uses.py", commit=commit)
    assert failed.returncode == 2
    last = failed.stderr.splitlines()[-1]
    assert f"{name} of the commit cannot be installed: " in last
    assert "Hash mismatch" in last
    assert environments(home) == []


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


@needs_uv
def test_settings_of_uv_count_for_the_environment(launch, commit_with, home, wheels):
    make_wheel(wheels, "1.0")
    first = commit_with("requirements.lock", requirements(wheels))
    second = commit_with("uv.toml", "link-mode = 'copy'\n")
    for commit in (first, second):
        words = ("--environment", "uv", "--module", "uses.py")
        assert launch(*words, commit=commit).returncode == 0
    assert len(environments(home)) == 2


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


def test_a_toml_lock_file_that_refers_to_other_files_counts_with_its_commit():
    own = b'source = { virtual = "." }\n'
    other = b'source = { editable = "packages/more" }\n'
    assert lock_file_digest(own, "a") == lock_file_digest(own, "b")
    assert lock_file_digest(other, "a") != lock_file_digest(other, "b")
