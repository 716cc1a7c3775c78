"""The tiers of tests: what they list exists, a case that is too long for its tier fails."""

import json
import os
import subprocess
import sys

import pytest

from tests import durations, tiers
from tests.conftest import CHECKOUT

CONFTEST = """
from pathlib import Path
from tests import durations, tiers
pytest_plugins = ("tests.durations", "tests.tiers")
tiers.FOLDER = Path(__file__).parent
tiers.LIMIT_S["quick"] = -1  # every call is longer
durations.TABLE = Path(__file__).with_name("durations.tsv")
"""
TESTS = """
import pytest
def test_a(): pass
@pytest.mark.parametrize("x", ["one", "two"])
def test_b(x): pass
"""


def test_what_the_tiers_list_exists():
    listed = [line for name in tiers.LISTED for line in tiers.lines(name)]
    assert [line for line in listed if not tiers.exists(line)] == []


def test_the_makefile_selects_the_quick_tier_by_the_same_words():
    assert f"\nQUICK := {tiers.QUICK}\n" in (CHECKOUT / "Makefile").read_text()


@pytest.fixture
def suite(tmp_path):
    """Runs four cases, of which the files list two: suite(*options) -> standard output."""
    files = {"conftest.py": CONFTEST, "pytest.ini": "[pytest]", "full.txt": "test_one.py::test_b\n",
             "nightly.txt": "test_one.py::*[two]\n", "test_one.py": TESTS,
             "test_two.py": "def test_c(): pass",
             "durations.tsv": "5.0\ttest_two.py::test_c\n"}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def run(*options):
        command = [sys.executable, "-m", "pytest", "--rootdir", tmp_path, "-v", tmp_path, *options]
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a quicker start
        pipes = {"capture_output": True, "text": True}
        return subprocess.run(command, cwd=CHECKOUT, env=environment, **pipes).stdout

    return run


def test_long_files_are_first_and_a_case_that_is_too_long_fails_with_a_sentence(suite):
    shown = suite()
    assert "2 failed, 2 passed" in shown
    assert "test_one.py::test_a took 0 s: it is of the quick tier, whose limit is -1 s" in shown
    assert shown.index("test_c") < shown.index("test_a")


def test_a_marker_selects_what_is_listed_and_its_durations_are_noted(suite, tmp_path):
    assert "1 passed, 2 deselected" in suite("-m", "full")  # test_two.py is not even imported
    assert "1 passed, 2 deselected" in suite("-m", "nightly")
    noted = json.loads((tmp_path / ".pytest_cache/v" / durations.NOTED).read_text())
    assert set(noted) == {"test_one.py::test_b[one]", "test_one.py::test_b[two]"}


def test_without_a_cache_nothing_is_noted(suite, tmp_path):
    assert "1 passed, 2 deselected" in suite("-m", "full", "-p", "no:cacheprovider")
    assert not (tmp_path / ".pytest_cache").exists()


def test_a_case_that_grew_more_than_the_others_is_named():
    before = {"a": 2.0, "b": 4.0, "c": 3.0, "d": 1.0}
    now = {"a": 4.0, "b": 8.0, "c": 9.0, "d": 2.0, "new": 1.0, "long": 9.0}
    lines = durations.grown(before, now)
    assert lines == ["   9.0 s, was 6.0 s: c", "   9.0 s, was 0.0 s: long"]
