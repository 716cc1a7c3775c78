"""Addresses that are allowed, and credentials, which are in no command line and in no file."""

import shutil
import subprocess
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.lab.launch import git_server
from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.address import parse_address, submodule_address
from zoerefine.lab.launch.git.mirror import fetch_commit, mirror_folder


@pytest.mark.parametrize(
    "text",
    [
        "ext::sh -c touch% /tmp/owned",
        "fd::17",
        "host::path",
        "ftp://host/repo",
        "--upload-pack=touch /tmp/owned",
        "-",
        "",
        "http://host/repo\n--option",
        "ssh://-oProxyCommand=touch/x",
        "-oProxyCommand=touch:x",
        "git@-oProxyCommand=x:y",
        "host:-option",
        "https://host/repo?upload-pack=x",
        "https://user%0a:pass@host/repo",
        "https://host/re po",
        "$(touch /tmp/owned)",
        "; touch /tmp/owned",
    ],
)
def test_hostile_repositories_are_refused(text):
    with pytest.raises(UserError, match="--repo"):
        parse_address(text)


def test_a_repository_is_named_after_the_last_part_of_its_address():
    assert parse_address("https://host/team/tight.git").name == "tight"
    assert parse_address("git@host:team/repo.git").name == "repo"
    assert parse_address("ssh://git@host/team/digit").name == "digit"
    assert parse_address("https://host/team/repo.git/").name == "repo"
    assert parse_address("https://host/..").name == "repository"


@example("me", "000000")
@given(st.text("abcXYZ019-_.~%", min_size=1), st.text("abcXYZ019-_.~", min_size=6))
def test_credentials_are_removed_from_the_url_and_hidden_in_repr(user, password):
    login = f"{quote(user)}:{quote(password)}"
    source = parse_address(f"https://{login}@host.example/team/repo.git")
    assert source.url == "https://host.example/team/repo.git"
    assert password not in repr(source)
    assert source.environment()["ZOEREFINE_GIT_PASSWORD"] == password


def test_submodule_urls_are_relative_to_the_parent_and_never_local_folders(tmp_path):
    parent = parse_address("https://me:secret77@host/team/repo.git")
    inner = submodule_address(parent, "../other.git")
    assert (inner.url, inner.password) == ("https://host/team/other.git", "secret77")
    assert submodule_address(parent, "https://elsewhere/x").password == ""
    ssh = parse_address("git@host:team/repo.git")
    assert submodule_address(ssh, "../other.git").url == "git@host:team/other.git"
    for url in (f"file://{tmp_path}", str(tmp_path), "ext::sh -c id", "--upload-pack=x", "/etc"):
        with pytest.raises(UserError, match="--repo"):
            submodule_address(parent, url)


@pytest.fixture
def server(repository):
    """The repository over HTTP for one user."""
    with git_server.serving(git_server.RepositoryHandler, repository.folder.parent) as http:
        yield http


@pytest.fixture
def other():
    """Another server, which asks everybody for a password."""
    with git_server.serving(git_server.Handler) as http:
        yield http


def test_a_password_works_and_is_in_no_file_and_no_command_line(
    server, repository, home, launch, tmp_path
):
    url = git_server.url_of(server, f"/{repository.folder.name}", login=True)
    assert "version one" in launch("URL", url, repo=url).stdout
    for path in (*home.rglob("*"), *(tmp_path / "runs").rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            assert git_server.PASSWORD.encode() not in data, path
            assert b"p%40ss" not in data, path
    launched = [line for line in server.seen.splitlines() if "run_from_commit" not in line]
    assert any("git" in line for line in launched)
    assert not any(git_server.WORD in line for line in launched)


def test_a_wrong_password_is_an_error_that_does_not_show_it(server, home, repository):
    address = f"127.0.0.1:{server.server_address[1]}/{repository.folder.name}"
    source = parse_address(f"http://{git_server.USER}:wrong-word@{address}")
    with pytest.raises(UserError, match="cannot be fetched") as caught:
        fetch_commit(source, "main", home)
    assert "wrong-word" not in str(caught.value)
    assert "wrong-word" not in str(mirror_folder(source, home))


@pytest.mark.parametrize("status", [301, 302, 307])
@pytest.mark.parametrize("what", ["info/refs", "git-upload-pack"])
def test_a_redirection_does_not_give_the_password_to_another_server(
    server, other, home, repository, status, what
):
    server.redirect, server.status = (f"/tight/{what}", git_server.url_of(other)), status
    source = parse_address(git_server.url_of(server, "/tight", login=True))
    with pytest.raises(UserError, match="cannot be fetched"):
        fetch_commit(source, "main", home)
    assert git_server.LOGIN in server.logins
    assert set(other.logins) <= {None}


@pytest.fixture
def large(repository):
    """A commit with a file in Git LFS, whose content is on the server alone."""

    def make(lfs_url=""):
        attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
        (repository.folder / ".gitattributes").write_text(attributes)
        (repository.folder / "weights.bin").write_text(git_server.pointer())
        if lfs_url:
            (repository.folder / ".lfsconfig").write_text(f"[lfs]\n\turl = {lfs_url}\n")
        return repository.commit("large")

    return make


needs_lfs = pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")


@needs_lfs
def test_the_password_reaches_git_lfs_on_its_own_server(server, large, enter):
    place = enter(large(), repo=git_server.url_of(server, "/tight", login=True))
    assert (place / "weights.bin").read_bytes() == git_server.LARGE


@needs_lfs
@pytest.mark.parametrize("leak", ["lfs.url", "a redirection", "the place of the objects"])
def test_git_lfs_does_not_give_the_password_to_another_server(
    server, other, large, enter, monkeypatch, leak
):
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'lfs.transfer.maxretries=1'")  # it waits for each
    commit = large(git_server.url_of(other, "/lfs") if leak == "lfs.url" else "")
    if leak == "a redirection":
        server.redirect, server.status = ("/objects/batch", git_server.url_of(other)), 307
    if leak == "the place of the objects":
        server.objects_at = git_server.url_of(other)
    with pytest.raises(UserError, match="LFS"):
        enter(commit, repo=git_server.url_of(server, "/tight", login=True))
    if leak != "a redirection":  # which some versions of git-lfs do not follow
        assert other.logins, "git-lfs did not ask the other server at all"
    assert set(other.logins) <= {None}


def test_a_submodule_gets_the_password_on_the_same_scheme_host_and_port_only(monkeypatch):
    parent = parse_address("https://me:secret77@host/team/repo.git")
    monkeypatch.setattr("os.environ", dict(parent.login()))
    assert parse_address("https://HOST/other").password == "secret77"
    for url in ("http://host/x", "https://host:8443/x", "https://host.evil/x", "git://host/x"):
        assert submodule_address(parent, url).password == ""
        assert parse_address(url).password == ""


def test_a_repository_of_another_user_is_named_with_gits_own_cure(
    repository, tmp_path, monkeypatch
):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    folder = repository.folder.rename(tmp_path / "of o'ther")
    with pytest.raises(UserError, match="belongs to another user") as error:
        parse_address(str(folder))
    cure = str(error.value).partition("if you trust it: ")[2]
    subprocess.run(["sh", "-c", cure], check=True)
    assert parse_address(str(folder)).folder == folder
