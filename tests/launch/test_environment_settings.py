"""What settings of uv may do to a virtual environment."""

import pytest

from tests.launch.local_packages import (
    environments,
    index_of,
    lock_project,
    make_wheel,
    needs_uv,
    project,
    pylock,
    requirements,
)

pytestmark = pytest.mark.usefixtures("empty_cache")
PROJECT = project("dependencies = ['tinything==1.0']\n")


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
        locked = lock_project(repository.folder, PROJECT + index_of(wheels))
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
def test_settings_of_uv_count_for_the_environment(launch, commit_with, home, wheels):
    make_wheel(wheels, "1.0")
    first = commit_with("requirements.lock", requirements(wheels))
    second = commit_with("uv.toml", "link-mode = 'copy'\n")
    for commit in (first, second):
        words = ("--environment", "uv", "--module", "uses.py")
        assert launch(*words, commit=commit).returncode == 0
    assert len(environments(home)) == 2
