"""The configuration of a local repository runs nothing, whatever it names."""

import subprocess

import pytest

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.address import parse_address
from zoerefine.lab.launch.git.changes import uncommitted_files
from zoerefine.lab.launch.record.provenance import source_facts

SETTINGS = {
    "filters": ["filter.x.clean", "filter.x.smudge", "filter.x.process"],
    "a required filter": ["filter.x.clean", ("filter.x.required", "true")],
    "an odd name": ["filter.x=y.clean"],
    "programs for differences": ["diff.external", "diff.x.textconv", "diff.x.command"],
    "monitors and editors": ["core.fsmonitor", "core.editor", "core.pager", "core.sshCommand"],
    "other programs": ["core.alternateRefsCommand", "credential.helper", "merge.x.driver"],
    "of the server's side": ["uploadpack.packObjectsHook", "gpg.program"],
}


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("included", [False, True])
def test_no_program_of_the_configuration_runs(repository, plan, owned, kind, included):
    (repository.folder / ".gitattributes").write_text("*.txt filter=x diff=x\n*.py filter=x=y\n")
    repository.commit("attributes")
    for setting in SETTINGS[kind]:
        key, value = (setting, str(owned.program)) if isinstance(setting, str) else setting
        where = ["-f", str(repository.folder / "more")] if included else []
        repository.git("config", *where, key, value)
    if included:
        repository.git("config", "include.path", str(repository.folder / "more"))
        (repository.folder / ".git" / "info").mkdir(exist_ok=True)
        (repository.folder / ".git" / "info" / "exclude").write_text("more\n")
    (repository.folder / "version.txt").write_text("changed")
    with pytest.raises(UserError, match=r"version\.txt"):
        plan("HEAD")
    assert b"+changed" in plan("HEAD", allow_dirty=True).changes.patch
    assert source_facts(repository.folder)["dirty_files"] == ["version.txt"]
    assert not owned.file.exists()


@pytest.mark.parametrize("missing", ["a blob", "a tree", "an old commit"])
@pytest.mark.parametrize("key", ["uploadpack", "url", "vcs"])
def test_a_missing_object_is_fetched_from_nowhere(repository, plan, owned, tmp_path, missing, key):
    what = {"a blob": "HEAD:job.py", "a tree": "HEAD^{tree}", "an old commit": "HEAD~1"}[missing]
    one = repository.git("rev-parse", what)
    value = {"uploadpack": str(owned.program), "url": f"ext::{owned.program}", "vcs": "x"}
    repository.git("config", "remote.evil.url", str(tmp_path))
    repository.git("config", "remote.evil.promisor", "true")
    repository.git("config", "remote.evil.partialCloneFilter", "blob:none")
    repository.git("config", f"remote.evil.{key}", value[key])
    repository.git("config", "extensions.partialClone", "evil")
    repository.git("config", "core.repositoryFormatVersion", "1")
    (repository.folder / ".git" / "objects" / one[:2] / one[2:]).unlink()
    for ref in ("HEAD", "HEAD~1", "main", one[:8]):
        with pytest.raises(UserError):
            plan(ref, "absent.py")
    subprocess.run(["git", "fsck"], cwd=repository.folder, capture_output=True)
    assert not owned.file.exists()


def test_a_submodule_is_looked_into_with_the_same_care(repository, plan, owned):
    inner = type(repository)(repository.folder.with_name("inner")).init()
    (inner.folder / ".gitattributes").write_text("*.txt filter=x\n")
    inner.commit("inner")
    repository.git("submodule", "--quiet", "add", inner.folder, "libs/inner")
    repository.commit("a submodule")
    place = repository.folder / "libs" / "inner"
    type(repository)(place).git("config", "filter.x.clean", str(owned.program))
    (place / "version.txt").write_text("changed")
    (place / "new.txt").write_text("new")
    found = uncommitted_files(repository.folder)
    assert found == ["libs/inner/version.txt", "libs/inner/new.txt"]
    for allow_dirty, message in ((False, "uncommitted changes"), (True, "cannot record")):
        with pytest.raises(UserError, match=message):
            plan("HEAD", allow_dirty=allow_dirty)
    assert not owned.file.exists()


def test_a_working_tree_elsewhere_is_refused(repository, tmp_path):
    (tmp_path / "precious").mkdir()
    repository.git("config", "core.worktree", str(tmp_path / "precious"))
    with pytest.raises(UserError, match=r"core\.worktree"):
        parse_address(str(repository.folder))


def test_a_worktree_and_a_folder_below_it_can_be_launched(repository, tmp_path, plan):
    repository.git("worktree", "add", "-q", str(tmp_path / "tree"), repository.first)
    (tmp_path / "tree" / "below").mkdir()
    for folder in (tmp_path / "tree", tmp_path / "tree" / "below"):
        assert plan("HEAD", repo=folder).commit == repository.first


def test_the_users_own_filters_still_work(repository, plan, tmp_path, monkeypatch):
    settings = tmp_path / "global"
    settings.write_text('[filter "x"]\n\tclean = tr a-z A-Z\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    (repository.folder / ".gitattributes").write_text("*.txt filter=x\n")
    repository.commit("attributes")
    (repository.folder / "version.txt").write_text("changed")
    assert b"+CHANGED" in plan("HEAD", allow_dirty=True).changes.patch
