"""The commit that a ref stands for, and refs that are refused."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.address import parse_address
from zoerefine.lab.launch.git.mirror import branch_or_tag_with, check_ref, fetch_commit


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def test_refs_have_the_meaning_that_git_gives_them(repository, home):
    repository.git("tag", "light", repository.first)
    repository.git("tag", "-a", "full", "-m", "annotated", repository.first)
    repository.git("branch", "side/branch", repository.first)
    for text in (str(repository.folder), f"file://{repository.folder}"):
        source = parse_address(text)
        for ref in (repository.first, repository.first[:8], "light", "full", "side/branch"):
            assert fetch_commit(source, ref, home)[1] == repository.first, (text, ref)
        for ref in ("main", "HEAD"):
            assert fetch_commit(source, ref, home)[1] == repository.second, (text, ref)


def test_a_branch_and_a_tag_of_one_name_must_be_one_commit(repository, home):
    repository.git("tag", "both", repository.first)
    repository.git("branch", "both", repository.first)
    for text in (str(repository.folder), f"file://{repository.folder}"):
        assert fetch_commit(parse_address(text), "both", home)[1] == repository.first
    repository.git("branch", "--force", "both", repository.second)
    for text in (str(repository.folder), f"file://{repository.folder}"):
        with pytest.raises(UserError, match=r"both is refs/heads/both .* and refs/tags/both"):
            fetch_commit(parse_address(text), "both", home)


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_name_that_begins_another_commits_hash_is_refused(repository, home, kind):
    name = repository.first[:7]
    repository.git(kind, name, repository.first)
    for text in (str(repository.folder), f"file://{repository.folder}"):
        assert fetch_commit(parse_address(text), name, home)[1] == repository.first
    repository.git(kind, "--force", name, repository.second)
    for text in (str(repository.folder), f"file://{repository.folder}"):
        with pytest.raises(UserError, match=f"/{name} .* and the start of the hash {name}"):
            fetch_commit(parse_address(text), name, home)


def test_new_commits_and_moved_branches_are_fetched(repository, home):
    source = parse_address(f"file://{repository.folder}")
    assert fetch_commit(source, "main", home)[1] == repository.second
    third = repository.commit("three")
    assert fetch_commit(source, "main", home)[1] == third


def test_a_commit_that_the_mirror_has_is_not_fetched(repository, home):
    source = parse_address(f"file://{repository.folder}")
    fetch_commit(source, repository.first, home)
    repository.folder.rename(repository.folder.with_name("gone"))
    assert fetch_commit(source, repository.first, home)[1] == repository.first


def test_a_commit_that_is_not_on_the_given_branch_is_refused(repository, home):
    source = parse_address(str(repository.folder))
    repository.git("branch", "old", repository.first)
    assert fetch_commit(source, repository.first, home, "main")[1] == repository.first
    with pytest.raises(UserError, match=r"not on branch old of"):
        fetch_commit(source, repository.second, home, "old")


def test_unknown_refs_and_repositories_are_errors_with_their_names(repository, home, tmp_path):
    source = parse_address(str(repository.folder))
    for ref in ("0" * 40, "abcdef0", "no-such-branch"):
        with pytest.raises(UserError, match=f"'?{ref}|{ref}"):
            fetch_commit(source, ref, home)
    with pytest.raises(UserError, match="without a git repository"):
        parse_address(str(tmp_path))
    with pytest.raises(UserError, match="cannot be fetched"):
        fetch_commit(parse_address(f"file://{tmp_path}/absent"), "main", home)


def test_an_ambiguous_hash_is_an_error_that_asks_for_more_digits(repository, home):
    first, second = twins(repository)
    repository.git("branch", "twin", first)
    repository.git("branch", "other", second)
    for text in (str(repository.folder), f"file://{repository.folder}"):
        with pytest.raises(UserError, match=r"start of 2 commits .* give more digits"):
            fetch_commit(parse_address(text), first[:4], home)
        assert fetch_commit(parse_address(text), first[:12], home)[1] == first


def twins(repository):
    """Two commits whose hashes start with the same digits."""
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
def test_a_ref_must_start_with_a_letter_digit_or_underscore(ref):
    if not ref.startswith("_"):
        with pytest.raises(UserError):
            check_ref(ref)


def test_a_partial_clone_is_launched_where_it_has_the_commits_files(repository, home):
    repository.git("config", "uploadpack.allowFilter", "true")
    clone = repository.folder.with_name("clone")
    source = f"file://{repository.folder}"
    repository.git("clone", "--quiet", "--filter=blob:none", source, clone)
    address = parse_address(str(clone))
    mirror, commit = fetch_commit(address, "HEAD", home, "main")
    assert commit == repository.second
    assert branch_or_tag_with(address, mirror, commit) == "main"
    with pytest.raises(UserError, match="is a partial clone without all files of"):
        fetch_commit(address, repository.first, home)
    type(repository)(clone).git("fetch", "--quiet", "--refetch", "--no-filter")
    assert fetch_commit(address, repository.first, home)[1] == repository.first


def test_a_refusal_leaves_no_empty_mirror(repository, home):
    source = parse_address(str(repository.folder))
    for ref, branch in (("0" * 40, ""), ("no-such-branch", ""), ("main", "absent")):
        with pytest.raises(UserError):
            fetch_commit(source, ref, home, branch)
        assert not [path for path in (home / "mirrors").glob("*") if path.is_dir()]
    mirror, _ = fetch_commit(source, "main", home)
    with pytest.raises(UserError):
        fetch_commit(source, "0" * 40, home)
    assert mirror.is_dir()
