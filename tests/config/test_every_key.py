"""Every declared key: it has a meaning, and a wrong value is refused before anything is done."""

import json
import math
import subprocess
import sys
from dataclasses import fields
from functools import singledispatch
from typing import get_origin

import pytest

from zoerefine.config import defaults, load_config, value_of
from zoerefine.config.collection_types import ListOf, MappingOf, OpenMapping
from zoerefine.config.schema import GROUPS, KEYS, Config
from zoerefine.config.value_types import Flag, Integer, Number, OneOf, Text
from zoerefine.errors import UserError


@singledispatch
def wrong_values(type):
    """Values that a type must refuse: another type, out of range, an unknown name."""
    raise NotImplementedError(f"give wrong values of {type}")


@wrong_values.register
def _(type: Integer):
    low = [type.at_least - 1] if type.at_least is not None else []
    high = [type.at_most + 1] if type.at_most is not None else []
    return ["x", True, 1.5, math.nan, math.inf, [1], {"a": 1}, *low, *high]


@wrong_values.register
def _(type: Number):
    low = [bound - 1 for bound in (type.at_least, type.above) if bound is not None]
    high = [bound + 1 for bound in (type.at_most, type.below) if bound is not None]
    excluded = [bound for bound in (type.above, type.below) if bound is not None]
    infinite = [] if type.may_be_infinite else [math.inf]
    return ["x", "", True, math.nan, -math.inf, 10**400, [1.0], *low, *high, *excluded, *infinite]


@wrong_values.register
def _(type: Flag):
    return ["maybe", 1, 0.0, None, [True]]


@wrong_values.register
def _(type: Text):
    return ["a\0b", "\ud800", ["a"], {"a": 1}, *(["../../outside"] if type.check else [])]


@wrong_values.register
def _(type: OneOf):
    return ["no such name", "os:system()", 7, 1.5, ["a"], {"a": 1}]


@wrong_values.register
def _(type: ListOf):
    inside = [[one] for one in wrong_values(type.element)]
    return ["x", 1, {"a": 1}, *inside, *([[]] if type.at_least else [])]


@wrong_values.register
def _(type: MappingOf):
    fields = type.fields
    right = {name: 1.0 if isinstance(field, Number) else "l1" for name, field in fields.items()}
    wrong = [
        {**right, name: value} for name, field in fields.items() for value in wrong_values(field)
    ]
    return [1, "x", {}, {**right, "more": 1}, *wrong]


@wrong_values.register
def _(type: OpenMapping):
    return [1, "x", [1], {"a b": 1}, {1: 2}, {"a": {"b": 1}}, {"a": math.nan}, {"a": "b\0"}]


@pytest.mark.parametrize("name", KEYS)
def test_every_wrong_value_is_refused_with_the_keys_path(name):
    group, _, word = name.rpartition(".")
    for value in wrong_values(KEYS[name].type):
        tree = {group: {word: value}} if group else {word: value}
        with pytest.raises(UserError) as raised:
            load_config(tree)
        message = str(raised.value)
        assert name in message
        assert len(message) < 500, "a message is one sentence"


@pytest.mark.parametrize("name", KEYS)
def test_every_key_has_a_meaning_and_an_allowed_default(name):
    key = KEYS[name]
    assert len(key.meaning) > 3
    assert key.type.allowed
    assert key.type.read(key.default, name) == key.default
    assert type(value_of(defaults(), name)) in (type(key.default), type(defaults()))
    if name.endswith("_S"):
        assert key.unit == "s"


def test_every_group_has_a_meaning():
    assert all(len(meaning) > 3 for meaning in GROUPS.values())


COMMANDS = """
import importlib, json, os, sys, time
found = []
for verb in ("train", "search", "check", "profile"):
    command = importlib.import_module(f"zoerefine.commands.{verb}")
    for key, value in json.load(open(sys.argv[1])):
        start = time.process_time()
        try:
            command.main(["--config", sys.argv[2], key, value])
            found.append([verb, key, value, "accepted"])
        except Exception as error:
            if type(error).__name__ != "UserError" or key not in str(error):
                found.append([verb, key, value, repr(error)])
        if time.process_time() - start > 1:
            found.append([verb, key, value, "slow"])
        if os.listdir():
            found.append([verb, key, value, os.listdir()])
print(json.dumps([found, sorted({"torch", "optuna", "cv2"} & set(sys.modules))]))
"""


def test_commands_refuse_every_wrong_value_at_once_and_write_nothing(tmp_path):
    pairs = [
        (name, json.dumps(next(v for v in wrong_values(key.type) if v == v)))
        for name, key in KEYS.items()
    ]
    (tmp_path / "pairs.json").write_text(json.dumps(pairs))
    (tmp_path / "empty.yaml").write_text("")
    folder = tmp_path / "folder"
    folder.mkdir()
    words = [sys.executable, "-c", COMMANDS, tmp_path / "pairs.json", tmp_path / "empty.yaml"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], []]


def test_the_type_that_checkers_see_is_the_type_of_the_value():
    for group in fields(Config):
        for one in fields(group.type) if not group.metadata else [group]:
            expected = get_origin(one.type) or one.type
            assert isinstance(one.metadata["default"], expected), one.name
