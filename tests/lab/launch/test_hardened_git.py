"""Git: what GitPython's checks refuse, its errors, and where GitPython is used."""

import ast
import os
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from tests.lab.launch.conftest import launch_command
from tests.processes import run_new_python, run_program
from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.commands import REPOSITORY_VARIABLES, GitError, git
from zoerefine.lab.launch.workspace.checkout import commit_tree, read_objects, read_tree

ROOT = Path(__file__).resolve().parents[3]
ALL_PROTOCOLS = {"GIT_ALLOW_PROTOCOL": "ext:file:git:http:https:ssh:x"}


@pytest.fixture
def bare(repository, tmp_path):
    """A bare repository with the commits of another."""
    repository.git("clone", "--quiet", "--bare", repository.folder, tmp_path / "bare.git")
    return tmp_path / "bare.git"


def imports(path):
    """The top-level packages that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def test_one_module_imports_gitpython():
    folders = [ROOT / name for name in ("zoerefine", "platform", "benchmarks", "examples")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    found = [path.name for path in files if {"git", "gitdb", "smmap"}.intersection(imports(path))]
    assert found == ["commands.py"]


def test_a_second_launch_does_not_import_gitpython(repository, config, home, tmp_path):
    imported = []
    for words in ((), ("KEY", "other")):
        command = launch_command(repository, config, *words)
        command[1:1] = ["-X", "importtime"]
        done = run_program(command, cwd=tmp_path)
        names = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
        assert "zoerefine.lab.launch.git.commands" in names
        imported.append("git.cmd" in names)
    assert imported == [True, False]


@pytest.mark.parametrize(
    "words",
    [
        ("fetch", "--", "ext::{program}", "main"),
        ("fetch", "--", "ext://{program}", "main"),
        ("fetch", "--", "x::{program}", "main"),
        ("fetch", "--", "::{program}", "main"),
        ("remote", "add", "--", "other", "ext::{program}"),
    ],
)
def test_gitpython_refuses_protocols_that_run_programs(bare, owned, words):
    """Also where we would allow them."""
    words = [word.format(program=owned.program) for word in words]
    with pytest.raises(GitError, match=rf"git {words[0]} is refused: The `.*::?/?/?` protocol"):
        git(*words, folder=bare, env=ALL_PROTOCOLS)
    assert not owned.file.exists()
    assert git("for-each-ref", "refs/remotes", folder=bare) == ""


@pytest.mark.parametrize(
    "words",
    [
        ("fetch", "--upload-pack={program}", "--", "{bare}", "main"),
        ("fetch", "--upload-pack", "{program}", "--", "{bare}", "main"),
        ("fetch", "--quiet", "--upl={program}", "--", "{bare}", "main"),
        ("fetch", "--", "{bare}", "--upload-pack={program}"),
        ("init", "--quiet", "--template={program}", "{new}"),
        ("init", "--templ={program}", "{new}"),
        ("init", "--separate-git-dir={program}.git", "{new}"),
    ],
)
def test_gitpython_refuses_options_that_run_programs(bare, owned, tmp_path, words):
    new = tmp_path / "new"
    words = [word.format(program=owned.program, bare=bare, new=new) for word in words]
    with pytest.raises(GitError, match=rf"git {words[0]} is refused: --[a-z-]+ is not allowed$"):
        git(*words, folder=bare)
    assert not owned.file.exists()
    assert not new.exists()


def test_variables_of_the_caller_redirect_nothing(bare, repository, tmp_path, monkeypatch):
    other = type(repository)(tmp_path / "other").init()
    other.commit("another")
    own = {name: str(other.folder / ".git") for name in REPOSITORY_VARIABLES}
    own |= {"GIT_OBJECT_DIRECTORY": str(other.folder / ".git" / "objects"), "GIT_PREFIX": "x/"}
    before = other.git("for-each-ref")
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    git("update-ref", "refs/held/x", repository.first, folder=bare)
    assert git("rev-parse", "refs/held/x", folder=bare) == repository.first
    assert "version.txt" in read_tree(bare, commit_tree(bare, repository.first))
    for name in own:
        monkeypatch.delenv(name)
    assert other.git("for-each-ref") == before


@pytest.mark.parametrize("name", ["$HOME", "${HOME}", "~", "%HOME%", "a\\b", "new\nline", "a=b"])
def test_a_folder_is_taken_by_its_name(bare, repository, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = bare.rename(tmp_path / name)
    for folder in (place, Path(name)):
        git("update-ref", "refs/held/x", repository.second, folder=folder)
        git("update-ref", "-d", "refs/held/x", repository.second, folder=folder)
        assert "version.txt" in read_tree(folder, commit_tree(folder, repository.first))


def test_a_folder_that_git_cannot_enter_is_an_error(tmp_path, config):
    for folder, message in ((tmp_path / "absent", "does not exist"), (config, "not a folder")):
        for words in (("update-ref", "-d", "refs/x"), ("rev-parse", "HEAD")):
            with pytest.raises(GitError, match=message):
                git(*words, folder=folder)


def test_bytes_of_any_kind_reach_git_and_come_back(repository):
    data = bytes(range(256)) * 5000
    (repository.folder / "data.bin").write_bytes(data)
    repository.git("add", "data.bin")
    patch = subprocess.run(
        ["git", "diff", "--cached", "--binary"], cwd=repository.folder, capture_output=True
    ).stdout
    repository.git("reset", "--quiet", "--hard")
    git("apply", "--index", "--binary", "-", folder=repository.folder, stdin=patch)
    assert (repository.folder / "data.bin").read_bytes() == data


def test_a_failed_command_is_one_line_without_its_words(bare):
    with pytest.raises(UserError) as raised:
        git("update-ref", "refs/held/x", "not-a-commit", folder=bare)
    assert str(raised.value) == "git update-ref failed: fatal: not-a-commit: not a valid SHA1"
    assert raised.value.__cause__ is None


def test_git_that_is_not_installed_is_one_line(bare, repository, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for words in (("update-ref", "-d", "refs/x"), ("rev-parse", "HEAD")):
        with pytest.raises(UserError, match=r"^git is not installed"):
            git(*words, folder=bare)
    with pytest.raises(UserError, match=r"^git is not installed"):
        read_tree(bare, repository.first)


def test_gitpython_is_imported_where_git_is_not_installed(tmp_path):
    code = "from zoerefine.lab.launch.git.commands import git; git('init', 'x')"
    variables = os.environ | {"PATH": str(tmp_path), "GIT_PYTHON_REFRESH": "raise"}
    done = run_new_python(code, env=variables, cwd=tmp_path, exit_code=1)
    assert done.stderr.splitlines()[-1].endswith("install it (e.g. apt install git)")


def test_a_damaged_object_is_one_line(repository):
    tree = commit_tree(repository.folder, repository.first)
    loose = repository.folder / ".git" / "objects" / tree[:2] / tree[2:]
    loose.chmod(0o600)
    loose.write_bytes(b"damaged" + loose.read_bytes()[7:])
    with pytest.raises(GitError, match=r"^git cat-file failed: (error|fatal): .*$"):
        read_tree(repository.folder, tree)


def test_no_credentials_reach_a_log(tmp_path):
    """With every log of git and of GitPython turned on."""
    code = """
import logging, sys
from pathlib import Path
logging.basicConfig(level=logging.DEBUG)
from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.mirror import fetch_commit
from zoerefine.lab.launch.git.address import parse_address
address = parse_address("http://robot-name:s3cret-word@127.0.0.1:9/repository")
try:
    fetch_commit(address, "main", Path("home"))
except UserError as error:
    print(error)
"""
    variables = os.environ | {"GIT_PYTHON_TRACE": "full", "GIT_TRACE": "1", "GIT_TRACE_CURL": "1"}
    done = run_new_python(code, env=variables, cwd=tmp_path)
    assert "127.0.0.1:9/repository cannot be fetched: git fetch failed" in done.stdout
    for secret in ("s3cret-word", "robot-name"):
        assert secret not in done.stdout + done.stderr


SIZE_BYTES = 24 * 2**20


@pytest.fixture
def blobs(repository):
    """The ids of eight large objects and three small ones."""
    contents = [bytes([n]) * SIZE_BYTES for n in range(8)] + [b"a", b"", b"c\n"]
    command = ["git", "hash-object", "-w", "--stdin"]
    return [
        subprocess.run(command, cwd=repository.folder, input=one, capture_output=True)
        .stdout.decode()
        .strip()
        for one in contents
    ]


def test_large_objects_are_not_in_memory_together(repository, blobs):
    tracemalloc.start()
    try:
        found = [
            (one, len(content)) for one, content in read_objects(repository.folder, "blob", blobs)
        ]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == list(zip(blobs, [SIZE_BYTES] * 8 + [1, 0, 2], strict=True))
    assert peak_bytes < 10 * SIZE_BYTES  # of all at once: more than 16


def test_a_missing_object_is_named(repository, blobs):
    missing = "1" * 40
    with pytest.raises(UserError, match=f"does not have the object {missing}"):
        list(read_objects(repository.folder, "blob", [*blobs[-3:], missing]))
