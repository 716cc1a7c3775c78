"""The tiers of tests: `make test` runs the quick one, `make test-all` the full one as well.

`full.txt` lists the cases of the full tier, `nightly.txt` those that only `make test-nightly` runs.
A case that takes longer than its tier allows fails.
"""

import gc
import os
import re
import shutil
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
LISTED = "nightly", "full"  # each in a file of its name; the first one that lists a case counts
QUICK = "not full and not nightly"  # what the Makefile selects
LIMIT_S = {"quick": 60, "full": 600, "nightly": 3600}  # of one call
# Who asks for more kills or damaged inputs than `make test-all` waits longer.
MORE = ("ZOEREFINE_FUZZ", "ZOEREFINE_REAL_DATA")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # the processes of pytest-xdist inherit it
        file, os.environ["ZOEREFINE_KILLS_LOG"] = tempfile.mkstemp(prefix="kills-")
        os.close(file)
        os.environ["ZOEREFINE_TEST_SERVERS"] = tempfile.mkdtemp(prefix="servers-")


def pytest_terminal_summary(terminalreporter):
    made = Counter(Path(os.environ["ZOEREFINE_KILLS_LOG"]).read_text().split())
    if made:
        each = ", ".join(f"{verb} {count}" for verb, count in sorted(made.items()))
        terminalreporter.write_line(f"{made.total()} kills: {each}")


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        os.unlink(os.environ.pop("ZOEREFINE_KILLS_LOG"))
        shutil.rmtree(os.environ.pop("ZOEREFINE_TEST_SERVERS"))


def pytest_ignore_collect(collection_path, config):
    """Files of which no case is in the tier that -m selects are not even imported."""
    path = os.path.relpath(collection_path, config.rootpath)
    selected = config.option.markexpr
    if collection_path.suffix != ".py":
        return None
    if selected in LISTED:
        return path not in files(selected) or None
    return (selected == QUICK and any(path in lines(name) for name in LISTED)) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    gc.disable()  # what is collected stays to the end
    try:
        return (yield)
    finally:
        gc.freeze()
        # So do the modules that tests import, at which the collector would look all the time.
        gc.set_threshold(50_000)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if (name := tier(item.nodeid)) in LISTED:
            item.add_marker(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    name = tier(item.nodeid)
    too_long = report.when == "call" and report.passed and call.duration > LIMIT_S[name] * crowd()
    if too_long and not asked_for_more() and not item.config.option.usepdb:
        report.outcome, report.longrepr = "failed", too_slow(item.nodeid, call.duration, name)
    return report


def crowd():
    """Processes that want a core, per core, and at least 1: a case takes that much longer."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


@cache
def tier(case):
    """`nightly`, `full` or `quick`."""
    return next((name for name in LISTED if pattern(name).fullmatch(case)), "quick")


@cache
def pattern(name):
    return re.compile("|".join(map(as_regex, lines(name))), re.DOTALL)


@cache
def files(name):
    return {line.partition("::")[0] for line in lines(name)}


@cache
def lines(name):
    """What the file of a tier lists."""
    texts = (FOLDER / f"{name}.txt").read_text().splitlines()
    return [text for text in texts if text and not text.startswith("#")]


def exists(line):
    """Whether the file and the test that a line names are there."""
    path, _, name = line.partition("::")
    file, test = FOLDER.parent / path, name.partition("[")[0]
    return file.is_file() and (not test or "*" in test or f"def {test}(" in file.read_text())


def as_regex(line):
    """A line stands for its own case, and for the cases of its file or test."""
    return ".*".join(map(re.escape, line.split("*"))) + r"(?:(?:::|\[).*)?"


def too_slow(case, seconds, name):
    text = (
        f"{case} took {seconds:.0f} s: it is of the {name} tier, whose limit is {LIMIT_S[name]} s"
    )
    return f"{text}; make it faster" + (", or list it in tests/full.txt" * (name == "quick"))


def asked_for_more():
    kills = int(os.environ.get("ZOEREFINE_TEST_KILLS") or 0)
    return kills > 3 or any(os.environ.get(name) for name in MORE)
