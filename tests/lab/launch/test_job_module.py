"""The job's script or module is the commit's own, or the launch is refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes import git, run_zoerefine
from zoerefine.base.errors import UserError
from zoerefine.lab.launch.launcher import start

REPORT = """
import json, os, pathlib, sys
run = pathlib.Path(os.environ["ZOEREFINE_RUN_FOLDER"])
run.joinpath("results.json").write_text(json.dumps({"loss": 1.0}))
print("file", __file__)
"""


LIBRARY = str(Path(__file__).parents[3])


@pytest.fixture
def elsewhere(tmp_path):
    """A folder on the user's PYTHONPATH with a package `tools` that a commit may lack."""
    package = tmp_path / "elsewhere" / "tools"
    package.mkdir(parents=True)
    for name in ("__init__", "fit", "other"):
        (package / f"{name}.py").write_text(REPORT)
    return {"PYTHONPATH": str(package.parent)}


def refused(done, message, tmp_path):
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.glob("runs/*/*/provenance.json"))
    return True


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("zoerefine.train", ()),
        ("tools.fit", ()),
        ("tools.fit", ("--cwd", "caller")),
        ("tools.fit", ("--seeds", "1,2", "--seed-key", "seed")),
        ("json.tool", ()),
        ("os", ()),
    ],
)
def test_a_module_that_the_commit_does_not_have_is_refused(
    launch, elsewhere, tmp_path, module, words
):
    done = launch("--module", module, *words, env=elsewhere, code=2)
    assert refused(done, f"the commit has no module {module}: check --module", tmp_path)


def test_the_default_module_is_refused_too(launch, tmp_path, config, repository, home):
    words = ["run", "--repo", repository.folder, "--commit", "HEAD", "--config", config]
    done = run_zoerefine(tmp_path, *words, code=2)
    assert refused(done, "the commit has no module zoerefine.train", tmp_path)


@pytest.fixture
def packaged(repository):
    """A commit with a package of two modules."""
    package = repository.folder / "tools"
    package.mkdir()
    for name in ("__init__", "fit", "__main__"):
        (package / f"{name}.py").write_text(REPORT)
    return repository.commit("a package")


@pytest.mark.parametrize(
    ("module", "cwd"),
    [("tools.fit", "workspace"), ("tools", "workspace"), ("tools", "caller"), ("tools.fit", "run")],
)
def test_a_module_of_the_commit_runs_from_there(
    launch, elsewhere, packaged, home, tmp_path, module, cwd
):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    done = launch("--module", module, "--cwd", cwd, commit=packaged, env=elsewhere)
    files = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("file ")]
    assert len(files) == 2
    assert all(file.startswith(str(home / "workspaces")) for file in files)


@pytest.mark.parametrize("cwd", ["workspace", "caller"])
def test_packages_in_the_folder_src_of_a_project_are_the_commits(
    launch, elsewhere, repository, home, cwd
):
    """Another version, such as an editable installation of the working tree, is not imported."""
    source = repository.folder / "src" / "tools"
    source.mkdir(parents=True)
    (repository.folder / "pyproject.toml").write_text("[project]\nname = 'tools'\n")
    (source / "__init__.py").touch()
    (source / "fit.py").write_text(REPORT)
    (repository.folder / "train.py").write_text("import tools.fit\n")
    commit = repository.commit("a package in src")
    for module in ("tools.fit", "train.py"):
        done = launch("--module", module, "--cwd", cwd, commit=commit, env=elsewhere)
        (file,) = {line.split()[1] for line in done.stdout.splitlines() if line[:5] == "file "}
        assert file.startswith(str(home / "workspaces"))


def install_editable(tree, site):
    """Install a project from its working tree into a folder for PYTHONPATH."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    local = ("--no-deps", "--no-index", "--no-build-isolation", "--target", site)
    subprocess.run([*pip, *local, "--editable", tree], check=True)
    (site / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(site)!r})\n")


@pytest.mark.parametrize(
    ("folder", "settings"),
    [
        ("python", "packages.find.where = ['python']"),  # a path file
        ("kit", "package-dir = {tools = 'kit/tools'}\npackages = ['tools']"),  # a finder
        ("python", ""),  # on the user's PYTHONPATH
    ],
)
def test_a_package_that_is_installed_from_the_working_tree_is_the_commits(
    launch, repository, home, tmp_path, folder, settings
):
    """The job of an old commit would import what the working tree has now."""
    tree, site = repository.folder, tmp_path / "site"
    package = tree / folder / "tools"
    (tree / "train.py").write_text("import tools\n")
    project = f"[project]\nname = 'tools'\nversion = '1'\n[tool.setuptools]\n{settings}\n"
    (tree / "pyproject.toml").write_text(project)
    without = repository.commit("no package")
    package.mkdir(parents=True)
    commits = []
    for version in ("old", "new"):
        (package / "__init__.py").write_text(f"print({version!r}, __file__)\n")
        commits.append(repository.commit(version))
    if settings:
        install_editable(tree, site)
    env = {"PYTHONPATH": f"{LIBRARY}:{site if settings else tree / folder}"}
    done = launch("--module", "train.py", commit=commits[0], env=env)
    assert f"old {home / 'workspaces'}" in done.stdout and "warning" not in done.stderr
    done = launch("--module", "train.py", commit=without, env=env)
    named = f"Python imports from {tree}/{folder}, and the commit has no {folder}"
    assert f"new {package}" in done.stdout and named in done.stderr
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", tree, clone)
    done = launch("--module", "train.py", "--again", repo=clone, commit=commits[0], env=env)
    assert f"old {home / 'workspaces'}" in done.stdout and "warning" not in done.stderr


def test_a_package_that_is_mapped_to_a_folder_of_another_name_is_named(
    launch, repository, tmp_path
):
    tree, site = repository.folder, tmp_path / "site"
    (tree / "source").mkdir()
    (tree / "source" / "__init__.py").write_text("print(__file__)\n")
    (tree / "train.py").write_text("import tools\n")
    settings = "package-dir = {tools = 'source'}\npackages = ['tools']"
    project = f"[project]\nname = 'tools'\nversion = '1'\n[tool.setuptools]\n{settings}\n"
    (tree / "pyproject.toml").write_text(project)
    commit = repository.commit("mapped")
    install_editable(tree, site)
    done = launch("--module", "train.py", commit=commit, env={"PYTHONPATH": f"{LIBRARY}:{site}"})
    assert f"Python imports tools from {tree}/source, whose name is another one" in done.stderr


def test_a_folder_without_init_does_not_hide_an_installed_package(
    launch, elsewhere, repository, tmp_path
):
    (repository.folder / "tools").mkdir()
    (repository.folder / "tools" / "fit.py").write_text(REPORT)
    commit = repository.commit("no __init__.py")
    done = launch("--module", "tools.fit", commit=commit, env=elsewhere, code=2)
    assert refused(done, "which is not in the commit", tmp_path)
    assert str(tmp_path / "elsewhere" / "tools") in done.stderr
    launch("--module", "tools.fit", commit=commit)


def hooked_site(tmp_path, place):
    """A folder whose sitecustomize.py finds `tools` before Python's own search does.

    Some build tools install an editable package in this way.
    """
    hook = f"""
import importlib.machinery, sys
class Hook:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "tools":
            return importlib.machinery.PathFinder.find_spec(name, [{place!r}])
sys.meta_path.insert(0, Hook)
"""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(hook)
    return str(tmp_path / "site")


def test_an_import_hook_of_an_editable_installation_is_noticed(
    launch, elsewhere, packaged, tmp_path
):
    env = {"PYTHONPATH": hooked_site(tmp_path, elsewhere["PYTHONPATH"])}
    done = launch("--module", "tools.fit", commit=packaged, env=env, code=2)
    assert refused(done, "which is not in the commit", tmp_path)


def test_a_link_out_of_the_commit_is_refused(launch, elsewhere, repository, tmp_path):
    (repository.folder / "fit.py").symlink_to(tmp_path / "elsewhere" / "tools" / "fit.py")
    (repository.folder / "tools").symlink_to(tmp_path / "elsewhere" / "tools")
    commit = repository.commit("links")
    for module in ("fit", "fit.py", "tools.fit", "tools/fit.py"):
        assert "commit" in launch("--module", module, commit=commit, code=2).stderr
    assert not list(tmp_path.glob("runs/*/*/provenance.json"))


def test_a_module_in_uncommitted_changes_counts(launch, repository):
    (repository.folder / "fit.py").write_text(REPORT)
    launch("--module", "fit", commit="HEAD", code=2)
    launch("--module", "fit", "--allow-dirty", commit="HEAD")


def zoerefine(tmp_path, *words, path=""):
    """A command that is refused, with one more folder on PYTHONPATH."""
    return run_zoerefine(tmp_path, *words, env={"PYTHONPATH": f"{LIBRARY}:{path}"}, code=2)


def test_a_search_refuses_such_a_module_before_its_first_trial(
    repository, config, elsewhere, home, tmp_path
):
    config.write_text("KEY: 1\n")
    words = ["--repo", repository.folder, "--commit", "HEAD", "--module", "tools.fit"]
    words += ["--config", config, "--metric", "loss", "--search", "KEY=[1, 2]", "--trials", "2"]
    done = zoerefine(tmp_path, "search", *words, path=elsewhere["PYTHONPATH"])
    assert refused(done, "the commit has no module tools.fit", tmp_path)


def test_a_repetition_refuses_a_module_from_elsewhere(
    launch, packaged, elsewhere, tmp_path, only_run
):
    launch("--module", "tools.fit", commit=packaged)
    run = only_run()
    site = hooked_site(tmp_path, elsewhere["PYTHONPATH"])
    done = zoerefine(tmp_path, "reproduce", run.path, path=site)
    assert "which is not in the commit" in done.stderr
    assert not list(run.path.parent.glob("*-again1"))


def test_the_library_that_a_script_may_import_is_recorded(launch, tmp_path, only_run):
    package = tmp_path / "library" / "zoerefine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "7.8"\n')
    launch(env={"PYTHONPATH": f"{LIBRARY}:{package.parent}"})
    first = json.loads(only_run().provenance_file.read_text())["library"]
    assert first["version"] != "7.8"
    assert len(first["digest"]) == 64
    env = {"PYTHONPATH": str(package.parent)}
    launch("KEY", "2", "--name", "second", env=env)
    second = json.loads(only_run("second").provenance_file.read_text())["library"]
    assert second["version"] == "7.8"
    assert second["digest"] != first["digest"]


def test_a_refused_launch_removes_only_what_it_made_itself(plan, tmp_path):
    planned = plan("HEAD")
    planned = replace(planned, job=replace(planned.job, environment="venv"))  # it has no lock file
    run = planned.run(tmp_path / "runs")
    with pytest.raises(UserError, match=r"requirements\.lock"):
        start(planned, run)
    assert not run.path.exists()
    (run.path / "notes").mkdir(parents=True)  # a run that lost its status.json
    for name in ("notes/a.md", "environment.txt", "input.yaml", "model.pt", ".mine"):
        (run.path / name).write_text("mine")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"requirements\.lock"):
        start(planned, run)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("kind", ["a file", "a folder", "a link"])
def test_only_our_own_link_named_latest_is_replaced(launch, tmp_path, only_run, kind):
    latest = tmp_path / "runs" / "job" / "latest"
    latest.parent.mkdir(parents=True)
    if kind == "a file":
        latest.write_text("mine")
    elif kind == "a folder":
        latest.mkdir()
    else:
        latest.symlink_to("before")
    launch()
    assert latest.is_symlink() == (kind == "a link")
    if kind == "a file":
        assert latest.read_text() == "mine"
    if kind == "a link":
        assert latest.resolve() == only_run().path
