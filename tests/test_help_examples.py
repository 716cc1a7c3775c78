"""The examples in every `--help` can be pasted in the repository's folder."""

import argparse
import shlex
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path

import pytest

from tests.processes import run_zoerefine
from zoerefine.cli import COMMANDS, main, run_named

CHECKOUT = Path(__file__).resolve().parents[1]
NO_EXAMPLE = {"doctor", "demo"}  # they need no arguments
RUN_HERE = ("config", "show", "runs --where", "runs --remove", "diff", "analyze", "infer",
            "data inspect", "data points", "data split",
            "search --config configs/search.yaml --plan")  # fmt: skip


def help_of(command):
    return run_zoerefine("/", command, "--help").stdout


@pytest.fixture(scope="module")
def examples():
    """The examples by command, as words."""
    found = {}
    for command in COMMANDS:
        text = help_of(command).partition("\nexamples")[2].partition("\n\n")[0].replace("\\\n", " ")
        lines = [line.strip() for line in text.splitlines()[1:]]
        found[command] = [shlex.split(line, comments=True) for line in lines]
    return found


class AcceptedError(Exception):
    """The options were accepted."""


@contextmanager
def parsing_only(monkeypatch):
    """While entered, a command ends when it has parsed its options."""
    with monkeypatch.context() as patched:
        for name in ("parse_args", "parse_known_intermixed_args"):
            method = getattr(argparse.ArgumentParser, name)
            patched.setattr(argparse.ArgumentParser, name, partialmethod(parse_only, method))
        yield


def parse_only(parser, method, words, *namespace):
    found = method(parser, words)
    assert not (isinstance(found, tuple) and found[1]), words
    raise AcceptedError


def test_every_command_has_examples_whose_options_and_configs_exist(examples, monkeypatch):
    monkeypatch.chdir(CHECKOUT)
    for command, lines in examples.items():
        assert lines or command in NO_EXAMPLE, f"{command} --help has no example"
        for program, *words in lines:
            if program == "torchrun":
                words = ["train", *words[words.index("zoerefine.train") + 1 :]]
            assert words[0] == command, words
            for word in words:
                files = word.split(",") if word.startswith("configs/") else []
                assert all(Path(file).is_file() for file in files), word
            with parsing_only(monkeypatch), pytest.raises(AcceptedError):
                run_named(words[0], words[1:])


def test_the_cheap_examples_run_after_the_demo(examples, study, world, tmp_path, monkeypatch):
    """In a folder that looks like the repository's after `make demo`, with a smaller study."""
    (tmp_path / "configs").symlink_to(CHECKOUT / "configs")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "synthetic").symlink_to(world)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "latest").symlink_to(study.path)
    monkeypatch.chdir(tmp_path)
    run = 0
    data_first = sorted(examples.items(), key=lambda item: item[0] != "data")
    for line in (words for _, lines in data_first for words in lines):
        if any(shlex.join(line[1:]).startswith(one) for one in RUN_HERE):
            less = ["LOADER.BATCH", "2"] * (line[1] == "search")  # its plan times some steps
            assert main(line[1:] + less) == 0, shlex.join(line)
            run += 1
    assert run >= 14
