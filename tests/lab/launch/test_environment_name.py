"""Which launches share a virtual environment: those for which it has the same packages."""

import pytest

from tests.lab.launch.local_packages import (
    index_of,
    lock_project,
    make_source,
    make_wheel,
    needs_uv,
    project,
    requirements,
)
from zoerefine.lab.launch.environment import environment_name

pytestmark = pytest.mark.usefixtures("empty_cache")
LOCAL = "[tool.uv.sources]\ntinything = { path = 'libs/tiny' }\n"
LOCAL_PROJECT = project(f"dependencies = ['tinything']\n{LOCAL}")


@pytest.fixture
def says(launch):
    """What the job prints in an environment of a kind."""

    def run(kind, commit, *words):
        done = launch("--environment", kind, "--module", "uses.py", *words, commit=commit)
        return done.stdout.split(" /")[0]

    return run


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("venv", "libs/tiny"),
        pytest.param("uv", "libs/tiny", marks=needs_uv),
        pytest.param("uv", "tinything @ file:libs/tiny", marks=needs_uv),
        pytest.param("uv", "tinything@./libs/tiny", marks=needs_uv),
    ],
)
def test_a_local_package_is_that_of_the_launched_commit(says, commit_with, repository, kind, line):
    for value in ("one", "two"):
        make_source(repository.folder / "libs" / "tiny", value)
        commit = commit_with("requirements.lock", f"{line}\n")
        assert says(kind, commit) == f"tinything {value}"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("venv", "requirements.lock"),
        pytest.param("uv", "requirements.lock", marks=needs_uv),
        pytest.param("uv", "uv.lock", marks=needs_uv),
    ],
)
def test_a_changed_local_package_is_installed_with_allow_dirty(
    says, commit_with, repository, kind, name
):
    place = repository.folder / "libs" / "tiny"
    make_source(place, "one")
    if name == "uv.lock":
        lock_project(repository.folder, LOCAL_PROJECT)
        commit = commit_with()
    else:
        commit = commit_with(name, "./libs/tiny\n")
    assert says(kind, commit) == "tinything one"
    make_source(place, "two")
    assert says(kind, commit, "--allow-dirty") == "tinything two"


@needs_uv
def test_a_changed_requirements_file_is_installed_with_allow_dirty(
    says, commit_with, repository, wheels
):
    make_wheel(wheels, "1.0")
    make_wheel(wheels, "2.0")
    base = repository.folder / "base.txt"
    base.write_text("tinything==1.0\n")
    commit = commit_with("requirements.lock", requirements(wheels, "-r base.txt"))
    assert says("uv", commit) == "tinything 1.0"
    base.write_text("tinything==2.0\n")
    assert says("uv", commit, "--allow-dirty") == "tinything 2.0"


@needs_uv
def test_wheels_of_a_commit_that_its_settings_name_are_of_the_launched_commit(
    says, commit_with, repository
):
    for value in ("one", "two"):
        make_wheel(repository.folder / "own", "1.0", value)
        files = ("pyproject.toml", index_of("own"), "requirements.lock", "tinything==1.0\n")
        assert says("uv", commit_with(*files)) == f"tinything {value}"


def is_shared(folder, kind="venv", name="requirements.lock", text="", more=()):
    """Whether two commits with these files share an environment."""
    for other, content in [(name, text), *more]:
        (folder / other).write_text(content)
    names = {environment_name(kind, folder / name, commit) for commit in ("a" * 40, "b" * 40)}
    return len(names) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# libs/tiny\n\n",
        "numpy",
        "numpy == 2.0  # of the index",
        "ruamel.yaml==0.18.6",
        "torch[opt_a, opt-b] >=2.0, !=2.1.*, <3; python_version < '3.13' and os_name == 'posix'",
        "numpy==2.0 --hash=sha256:00ff --hash sha256:00aa",
        "numpy==2.0 \\\n    --hash=sha256:00ff \\\n    --hash=sha256:00aa\n    # via -r base.in\n",
        "--index-url https://${TOKEN}@host/simple --extra-index-url=http://other/simple",
        "-i https://host/simple\n-f /shared/wheels\n--find-links file:///shared/wheels",
        "--no-index\n--pre\n--prefer-binary\n--require-hashes\n--only-binary=:all:\n"
        "--no-binary numpy,torch\n--trusted-host host:80",
        "https://host/tiny-1.0-py3-none-any.whl",
        "tiny[all] @ https://host/tiny.zip#sha256=00 ; os_name == 'posix'",
        "tiny@git+ssh://git@host/tiny@0123abc#subdirectory=python",
    ],
)
def test_commits_share_the_environment_of_a_lock_file_that_stands_alone(tmp_path, text):
    assert is_shared(tmp_path, text=text)


@pytest.mark.parametrize(
    "line",
    [
        *("libs/tiny", "./libs/tiny", "../tiny", ".", "/libs/tiny", "libs/tiny[all]", "libs\\tiny"),
        *("file:libs/tiny", "file:///libs/tiny", "${HOME}/tiny", "~/tiny", "FILE:tiny"),
        *("tiny @ file:libs/tiny", "tiny@./libs/tiny", "tiny @ libs/tiny", "tiny @${HOME}/tiny"),
        *("-r base.txt", "-rbase.txt", "--requirement=base.txt", "-c limits.txt", "-climits.txt"),
        *("--constraint limits.txt", "--build-constraint limits.txt", "-e .", "--editable=libs"),
        *("--find-links wheels", "-f./wheels", "-f file:wheels", "--index-url ./index"),
        *("-f file://${PROJECT_ROOT}/wheels", "--index-url https://host --find-links wheels"),
        *("tiny==1.0 --config-settings=path=libs", "--no-index -r base.txt", "--unknown"),
        *("# a comment \\\nlibs/tiny", "tiny==1.0 # a comment \\\nlibs/tiny",),
        *("git+file:///libs/tiny", "tiny (>=1)", "\ufefftiny==1.0", "tiny.whl", "a==1.zip"),
    ],
)  # fmt: skip
def test_each_commit_has_its_own_environment_where_a_line_may_lead_to_its_files(tmp_path, line):
    for archive in ("tiny.whl", "a==1.zip"):
        (tmp_path / archive).touch()
    assert not is_shared(tmp_path, text=f"numpy==2.0\n{line}\n")


def test_other_lock_files_give_other_environments(tmp_path):
    file = tmp_path / "requirements.lock"
    names = set()
    for text in ("numpy==2.0", "numpy==2.1"):
        file.write_text(text)
        names.add(environment_name("venv", file, "a"))
    assert len(names) == 2


def uv_package(source):
    return f"[[package]]\nname = 'tiny'\nversion = '1.0'\nsource = {source}\n"


@pytest.mark.parametrize(
    ("source", "shared"),
    [
        ("{ registry = 'https://pypi.org/simple' }", True),
        ("{ registry = '/shared/wheels' }", True),
        ("{ url = 'https://host/tiny.whl' }", True),
        ("{ git = 'ssh://git@host/tiny?rev=main#0123abc' }", True),
        ("{ virtual = '.' }", True),
        ("{ editable = '.' }", True),
        ("{ registry = 'wheels' }", False),
        ("{ path = 'libs/tiny.whl' }", False),
        ("{directory='libs/tiny'}", False),
        ("{ editable = 'libs/tiny' }", False),
        ("{ 'virtual' = 'libs/tiny' }", False),
        ("{ another = 'x' }", False),
    ],
)
@needs_uv
def test_a_uv_lock_is_shared_where_no_package_is_a_file_of_the_commit(tmp_path, source, shared):
    assert is_shared(tmp_path, "uv", "uv.lock", uv_package(source)) == shared


@pytest.mark.parametrize(
    ("source", "shared"),
    [
        ("wheels = [{ url = 'https://host/tiny.whl', hashes = { sha256 = '0' } }]", True),
        ("vcs = { type = 'git', url = 'https://host/tiny', commit-id = '0' }", True),
        ("archive = { url = 'file:///shared/tiny.zip', hashes = { sha256 = '0' } }", True),
        ("wheels = [{ path = 'tiny.whl', hashes = { sha256 = '0' } }]", False),
        ("wheels = [{ url = 'file:tiny.whl', hashes = { sha256 = '0' } }]", False),
        ("[packages.directory]\npath='libs/tiny'", False),
        ("this is not TOML", False),
    ],
)
@needs_uv
def test_a_pylock_is_shared_where_no_package_is_a_file_of_the_commit(tmp_path, source, shared):
    text = f"lock-version = '1.0'\n[[packages]]\nname = 'tiny'\n{source}\n"
    assert is_shared(tmp_path, "uv", "pylock.toml", text) == shared


@pytest.mark.parametrize(
    ("name", "settings", "shared"),
    [
        ("pyproject.toml", "[tool.other]\npath = 'libs'\n", True),
        ("pyproject.toml", "[[tool.uv.index]]\nname = 'x'\nurl = 'https://host/whl'\n", True),
        ("pyproject.toml", "[tool.uv]\noverride-dependencies = ['a @ https://host/a.zip']", True),
        ("pyproject.toml", "[tool.uv]\noverride-dependencies = ['a @ file:libs/a']", False),
        ("pyproject.toml", "[[tool.uv.index]]\nname = 'x'\nurl = 'index'\n", False),
        ("pyproject.toml", LOCAL, False),
        ("uv.toml", "link-mode = 'copy'\nfind-links = ['/shared/wheels']\n", True),
        ("uv.toml", "[pip]\nfind-links = ['wheels']\n", False),
    ],
)
@needs_uv
def test_settings_of_uv_may_lead_to_files_of_the_commit(tmp_path, name, settings, shared):
    more = [(name, settings)]
    assert is_shared(tmp_path, "uv", text="tiny==1.0", more=more) == shared
