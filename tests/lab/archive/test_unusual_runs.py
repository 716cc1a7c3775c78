"""Runs with unusual files: push sends only what pull takes, and refuses others before it sends."""

import json
import os
import sys

import pytest

from tests.lab.archive.conftest import contents, make_run

PART = os.fsdecode(b"\xff" * 240)  # six characters of JSON each


@pytest.mark.parametrize("seconds", [-3600, 10_413_792_000], ids=["before 1970", "after 2262"])
def test_a_file_of_another_century_comes_back(place, run, command, tmp_path, seconds):
    os.utime(run / "config.yaml", ns=(0, seconds * 10**9 + 1))
    url = command("push", run, place.url).out
    command("push", run, place.url)
    command("pull", "--runs", "back", url.strip())
    back = tmp_path / "back" / "demo" / "b77d9226"
    assert contents(back) == contents(run)
    assert (back / "config.yaml").stat().st_mtime_ns == (run / "config.yaml").stat().st_mtime_ns


def deep(run, levels):
    """A file below so many folders."""
    inner = run / "left"
    for _ in range(levels):
        inner.mkdir()
        inner /= "a"
    inner.touch()


def long_fact(run, name):
    facts = json.loads((run / "provenance.json").read_text())
    (run / "provenance.json").write_text(json.dumps(facts | {name: "0" * 5000}))


def many_files(run):
    """Names that make a manifest of more than 64 MiB."""
    inner = run / "left"
    while len(os.fsencode(inner)) < 3700:
        inner /= PART
    inner.mkdir(parents=True)
    for number in range(3600):
        (inner / f"{number}").touch()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda run: deep(run, 100), "it has more than 100 parts"),
        (lambda run: long_fact(run, "commit"), "of up to 4096 characters"),
        (many_files, "it is larger than 64 MiB"),
    ],
    ids=["deep", "commit", "many files"],
)
def test_what_pull_would_refuse_is_not_sent(folder, run, refused, change, fault):
    change(run)
    err = refused("push", run, folder.url)
    assert f"{run} cannot be archived" in err and fault in err
    assert folder.names() == []


def test_more_folders_than_calls_can_be_nested_are_one_line(folder, run, command):
    deep(run, 500)  # pytest could not remove many more
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(500)
    try:
        err = command("push", run, folder.url, code=2).err
    finally:
        sys.setrecursionlimit(limit)
    assert "it has more than 100 parts" in err
    assert folder.names() == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("demo/" + "x" * 250, "longer than 240 bytes"),
        ("a::b/c", "or ::"),
        ("lr:1/seed@2", "looks as if it held a password"),
    ],
)
def test_a_name_that_no_pull_can_take_is_not_sent(bucket, refused, tmp_path, name, fault):
    err = refused("push", make_run(tmp_path / "runs" / name), bucket.url)
    assert "cannot be archived by its name" in err and fault in err
    assert bucket.names() == []
