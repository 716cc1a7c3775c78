"""The tiers of tests: what they list exists, a case that is too long for its tier fails."""

import json
import subprocess
import sys

import pytest

from tests import durations, tiers
from tests.conftest import CHECKOUT

CONFTEST = """
from pathlib import Path
from tests import durations, tiers
pytest_plugins = ("tests.durations", "tests.tiers")
tiers.FULL = Path(__file__).with_name("full.txt")
tiers.LIMIT_S["quick"] = -1  # every call is longer
durations.TABLE = Path(__file__).with_name("durations.tsv")
"""
TESTS = """
import pytest
def test_a(): pass
@pytest.mark.parametrize("x", ["one", "two"])
def test_b(x): pass
"""


def test_what_the_full_tier_lists_exists():
    assert [line for line in tiers.lines() if not tiers.exists(line)] == []


@pytest.fixture
def suite(tmp_path):
    """Runs three cases, of which `full.txt` lists one: suite(*options) -> standard output."""
    files = {"conftest.py": CONFTEST, "full.txt": "test_one.py::*[two]\n", "pytest.ini": "[pytest]",
             "test_one.py": TESTS, "test_two.py": "def test_c(): pass",
             "durations.tsv": "5.0\ttest_two.py::test_c\n"}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def run(*options):
        command = [sys.executable, "-m", "pytest", "--rootdir", tmp_path, "-v", tmp_path, *options]
        return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True).stdout

    return run


def test_a_case_that_is_longer_than_its_tier_allows_fails_with_a_sentence(suite):
    shown = suite()
    assert "3 failed, 1 passed" in shown
    assert "test_one.py::test_a took 0 s: it is of the quick tier, whose limit is -1 s" in shown


def test_the_marker_of_the_full_tier_selects_what_is_listed(suite, tmp_path):
    assert "1 passed, 3 deselected" in suite("-m", "full")
    noted = json.loads((tmp_path / ".pytest_cache/v" / durations.NOTED).read_text())
    assert noted == {"test_one.py::test_b[two]": 0.0}


def test_without_a_cache_nothing_is_noted(suite, tmp_path):
    assert "1 passed, 3 deselected" in suite("-m", "full", "-p", "no:cacheprovider")
    assert not (tmp_path / ".pytest_cache").exists()


def test_long_files_are_first(suite):
    shown = suite("--collect-only")
    assert shown.index("test_c") < shown.index("test_a")


def test_a_case_that_grew_more_than_the_others_is_named():
    before = {"a": 2.0, "b": 4.0, "c": 3.0, "d": 1.0}
    now = {"a": 4.0, "b": 8.0, "c": 9.0, "d": 2.0, "new": 1.0, "long": 9.0}
    lines = durations.grown(before, now)
    assert lines == ["   9.0 s, was 6.0 s: c", "   9.0 s, was 0.0 s: long"]
