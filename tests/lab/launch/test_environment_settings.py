"""What the user's settings and the state of a disk may do to a virtual environment."""

import os
import shutil

import pytest

from tests.lab.launch.local_packages import (
    environments,
    index_of,
    kinds,
    lock_project,
    make_wheel,
    needs_uv,
    project,
    pylock,
    requirements,
)

pytestmark = pytest.mark.usefixtures("empty_cache")
GROUP = "[dependency-groups]\ndev = ['tinything==1.0']\n"
UNVERIFIED = "verify-hashes = false\n"


@pytest.fixture
def commit_with_wrong_hash(commit_with, repository, wheels):
    """Commit a lock file whose hash is not its package's: commit(name, further settings)."""

    def commit(name, settings=""):
        wheel, wrong = make_wheel(wheels, "1.0"), "0" * 64
        files = {"pyproject.toml": settings}
        if name == "requirements.lock":
            files[name] = requirements(wheels, f"tinything==1.0 --hash=sha256:{wrong}")
        elif name == "pylock.toml":
            files[name] = pylock(wheel, wrong)
        else:  # uv records hashes of packages on servers only, but checks each one
            files["pyproject.toml"] = project(f"{GROUP}{index_of(wheels)}{settings}")
            locked = lock_project(repository.folder, files["pyproject.toml"])
            files[name] = locked.replace(
                f'{wheel.name}"', f'{wheel.name}", hash = "sha256:{wrong}"'
            )
        return commit_with(*[word for pair in files.items() for word in pair])

    return commit


@pytest.fixture
def refuses_the_hash(launch, home):
    """Check that a launch of a commit ends with uv's message of another hash."""

    def check(commit, name):
        failed = launch("--environment", "uv", "--module", "uses.py", commit=commit, code=2)
        last = failed.stderr.splitlines()[-1]
        assert f"{name} of the commit cannot be installed: " in last
        assert "Hash mismatch" in last
        assert environments(home) == []

    return check


@needs_uv
@pytest.mark.parametrize("name", ["requirements.lock", "pylock.toml", "uv.lock"])
def test_uv_refuses_a_package_with_another_hash(
    commit_with_wrong_hash, refuses_the_hash, monkeypatch, name
):
    monkeypatch.setenv("UV_NO_VERIFY_HASHES", "1")
    settings = f"[tool.uv.pip]\n{UNVERIFIED}"
    refuses_the_hash(commit_with_wrong_hash(name, settings), name)


@needs_uv
@pytest.mark.parametrize("whose", ["commit", "user"])
def test_no_settings_file_turns_the_comparison_of_hashes_off(
    commit_with_wrong_hash, refuses_the_hash, repository, tmp_path, monkeypatch, whose
):
    folder = repository.folder if whose == "commit" else tmp_path / "settings" / "uv"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "uv.toml").write_text(f"[pip]\n{UNVERIFIED}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    refuses_the_hash(commit_with_wrong_hash("requirements.lock"), "requirements.lock")


@needs_uv
def test_a_variable_leaves_no_packages_of_uv_lock_out(
    launch, commit_with, repository, wheels, monkeypatch
):
    make_wheel(wheels, "1.0")
    lock_project(repository.folder, project(GROUP + index_of(wheels)))
    monkeypatch.setenv("UV_NO_DEV", "1")
    done = launch("--environment", "uv", "--module", "uses.py", commit=commit_with())
    assert "tinything 1.0" in done.stdout


@pytest.mark.parametrize("target", ["PIP_TARGET", "PIP_target"])
def test_variables_change_no_environment_of_pip(
    launch, commit_with, home, wheels, tmp_path, monkeypatch, target
):
    make_wheel(wheels, "1.0")
    monkeypatch.setenv(target, str(tmp_path / "elsewhere"))
    found = tmp_path / "found"  # pip counts what it finds there as installed
    shutil.unpack_archive(next(wheels.iterdir()), found, "zip")
    paths = [str(found), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    commit = commit_with("requirements.lock", requirements(wheels))
    launch("--environment", "venv", "--module", "uses.py", commit=commit)
    (environment,) = environments(home)
    assert list(environment.glob("lib/*/site-packages/tinything.py"))


@kinds
def test_variables_say_where_packages_come_from(launch, commit_with, wheels, monkeypatch, kind):
    make_wheel(wheels, "1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(wheels))
    commit = commit_with("requirements.lock", "tinything==1.0\n")
    done = launch("--environment", kind, "--module", "uses.py", commit=commit)
    assert "tinything 1.0" in done.stdout


@kinds
def test_a_variable_may_require_hashes(launch, commit_with, home, wheels, monkeypatch, kind):
    make_wheel(wheels, "1.0")
    for name in ("PIP_REQUIRE_HASHES", "UV_REQUIRE_HASHES"):
        monkeypatch.setenv(name, "1")
    commit = commit_with("requirements.lock", requirements(wheels))
    failed = launch("--environment", kind, "--module", "uses.py", commit=commit, code=2)
    last = failed.stderr.splitlines()[-1]
    assert "requirements.lock of the commit cannot be installed: " in last
    assert "require-hashes" in last
    assert environments(home) == []


def test_files_of_a_commit_do_not_shadow_pip_and_venv(launch, commit_with, wheels):
    make_wheel(wheels, "1.0")
    broken = "raise SystemExit('a file of the commit')\n"
    files = ("pip.py", broken, "venv.py", broken, "requirements.lock", requirements(wheels))
    launch("--environment", "venv", "--module", "uses.py", commit=commit_with(*files))


@needs_uv
def test_settings_of_uv_count_for_the_environment(launch, commit_with, home, wheels):
    make_wheel(wheels, "1.0")
    first = commit_with("requirements.lock", requirements(wheels))
    second = commit_with("uv.toml", "link-mode = 'copy'\n")
    for commit in (first, second):
        words = ("--environment", "uv", "--module", "uses.py")
        launch(*words, commit=commit)
    assert len(environments(home)) == 2


@needs_uv
def test_an_environment_whose_python_was_removed_is_made_again(
    launch, commit_with, home, wheels, tmp_path
):
    make_wheel(wheels, "1.0")
    commit = commit_with("requirements.lock", requirements(wheels))
    words = ("--environment", "uv", "--module", "uses.py", "KEY")
    launch(*words, "1", commit=commit)
    (environment,) = environments(home)
    python = environment / "bin" / "python"
    python.unlink()
    python.symlink_to(tmp_path / "removed" / "python3")
    assert "tinything 1.0" in launch(*words, "2", commit=commit).stdout
