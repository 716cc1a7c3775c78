"""What a repository argument and a ref mean, and which are refused."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.errors import UserError
from zoerefine.launch.mirror import check_ref, fetch_commit, mirror_folder
from zoerefine.launch.repository_address import parse_address


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def test_refs_mean_what_git_users_expect(repository, home):
    repository.git("tag", "light", repository.first)
    repository.git("tag", "-a", "full", "-m", "annotated", repository.first)
    repository.git("branch", "side/branch", repository.first)
    for text in (str(repository.folder), f"file://{repository.folder}"):
        source = parse_address(text)
        for ref in (repository.first, repository.first[:8], "light", "full", "side/branch"):
            assert fetch_commit(source, ref, home)[1] == repository.first, (text, ref)
        for ref in ("main", "HEAD"):
            assert fetch_commit(source, ref, home)[1] == repository.second, (text, ref)


def test_a_new_commit_is_fetched_and_a_moved_branch_is_seen(repository, home):
    source = parse_address(f"file://{repository.folder}")
    assert fetch_commit(source, "main", home)[1] == repository.second
    third = repository.commit("three")
    assert fetch_commit(source, "main", home)[1] == third


def test_a_known_commit_needs_no_fetch(repository, home):
    source = parse_address(f"file://{repository.folder}")
    fetch_commit(source, repository.first, home)
    repository.folder.rename(repository.folder.with_name("gone"))
    assert fetch_commit(source, repository.first, home)[1] == repository.first


def test_the_commit_must_be_on_the_branch_where_one_is_given(repository, home):
    source = parse_address(str(repository.folder))
    repository.git("branch", "old", repository.first)
    assert fetch_commit(source, repository.first, home, "main")[1] == repository.first
    with pytest.raises(UserError, match=r"not on branch old of"):
        fetch_commit(source, repository.second, home, "old")


def test_unknown_refs_and_folders_are_named(repository, home, tmp_path):
    source = parse_address(str(repository.folder))
    for ref in ("0" * 40, "abcdef0", "no-such-branch"):
        with pytest.raises(UserError, match=f"'?{ref}|{ref}"):
            fetch_commit(source, ref, home)
    with pytest.raises(UserError, match="without a git repository"):
        parse_address(str(tmp_path))
    with pytest.raises(UserError, match="cannot be fetched"):
        fetch_commit(parse_address(f"file://{tmp_path}/absent"), "main", home)


def test_an_ambiguous_hash_asks_for_more_digits(repository, home):
    first, second = twins(repository)
    repository.git("branch", "twin", first)
    repository.git("branch", "other", second)
    for text in (str(repository.folder), f"file://{repository.folder}"):
        with pytest.raises(UserError, match=r"start of 2 commits .* give more digits"):
            fetch_commit(parse_address(text), first[:4], home)
        assert fetch_commit(parse_address(text), first[:12], home)[1] == first


def twins(repository):
    """Two commits whose hashes begin alike."""
    tree = repository.git("rev-parse", "HEAD^{tree}")
    seen = {}
    for number in range(5000):
        text = f"tree {tree}\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\n{number}\n"
        digest = hashlib.sha1(f"commit {len(text)}\0{text}".encode()).hexdigest()
        if digest[:4] in seen:
            for body in (text, seen[digest[:4]]):
                yield repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=body)
            return
        seen[digest[:4]] = text


@pytest.mark.parametrize(
    "text",
    [
        "ext::sh -c touch% /tmp/owned",
        "--upload-pack=touch /tmp/owned",
        "-",
        "",
        "http://host/repo\n--option",
        "host::path",
        "ftp://host/repo",
        "fd::17",
    ],
)
def test_hostile_repositories_are_refused(text):
    with pytest.raises(UserError, match="--repo"):
        parse_address(text)


@pytest.mark.parametrize(
    "ref",
    [
        "--output=/tmp/x",
        "-h",
        "a..b",
        "HEAD@{1}",
        "a b",
        "",
        "$(true)",
        ";id",
        "a\nb",
        "^main",
        ":/x",
    ],
)
def test_hostile_refs_are_refused(ref):
    with pytest.raises(UserError, match="not the name of a commit"):
        check_ref(ref)


@given(st.text(st.characters(exclude_categories=["L", "N"]), min_size=1))
def test_no_ref_without_a_letter_or_digit_first_passes(ref):
    if not ref.startswith("_"):
        with pytest.raises(UserError):
            check_ref(ref)


def test_names_and_credentials(home):
    assert parse_address("https://host/team/tight.git").name == "tight"
    assert parse_address("git@host:team/repo.git").name == "repo"
    assert parse_address("ssh://git@host/team/digit").name == "digit"
    secret = parse_address("https://user:s3cret@host/team/repo.git")
    assert secret.url == "https://host/team/repo.git"
    assert "s3cret" not in str(mirror_folder(secret, home))
