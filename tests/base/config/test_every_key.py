"""Every declared key: it has a meaning, and a wrong value is refused before anything is done."""

import json
import math
from dataclasses import fields
from functools import singledispatch
from typing import get_origin

import pytest

from tests.processes import run_new_python
from zoerefine.base.config import defaults, load_config
from zoerefine.base.config.schema import GROUPS, KEYS, Config
from zoerefine.base.config.value_types import (
    Flag,
    Integer,
    ListOf,
    MappingOf,
    Number,
    OneOf,
    OpenMapping,
    Text,
)
from zoerefine.base.errors import UserError
from zoerefine.base.yaml.keys import value_at
from zoerefine.cli import main


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
    high = [2 * bound + 1 for bound in (type.at_most, type.below) if bound is not None]
    excluded = [bound for bound in (type.above, type.below) if bound is not None]
    infinite = [] if type.may_be_infinite else [math.inf]
    return ["x", "", True, math.nan, -math.inf, 10**400, [1.0], *low, *high, *excluded, *infinite]


@wrong_values.register
def _(type: Flag):
    return ["maybe", 1, 0.0, None, [True]]


@wrong_values.register
def _(type: Text):
    return ["a\0b", "\ud800", ["a"], {"a": 1}, *(["x" * 5000] if type.check else [])]


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
    assert type(value_at(defaults(), name)) in (type(key.default), type(defaults()))
    if name.endswith("_S"):
        assert key.unit == "s"


def limits(type):
    """The types of numbers inside a type."""
    if isinstance(type, ListOf):
        return limits(type.element)
    if isinstance(type, MappingOf):
        return [one for field in type.fields.values() for one in limits(field)]
    return [type] if isinstance(type, Integer | Number) else []


UNLIMITED = {"TRAIN.CLIP", "STUDY.CONSTRAINTS"}  # numbers that are only compared with


@pytest.mark.parametrize("name", sorted(KEYS.keys() - UNLIMITED))
def test_every_number_has_a_lowest_and_a_highest_value(name):
    for type in limits(KEYS[name].type):
        assert type.at_least is not None or type.above is not None
        assert type.at_most is not None or type.below is not None


EXTREMES = ["-1", "0", ".nan", ".inf", "!!float -.inf", "1e300", "1e-300", str(10**18), "9" * 4500,
            "-0.0", "", "''", "null", "true", "[]", "{}", "[[[]]]", "x" * 300, "/".join("y" * 3000),
            "a/" + "b" * 256, "../../outside", "/abs", "a.", "a ", ".a", "a\nb", "\u202e", "[.nan]",
            "[-1, -1]", "{name: l1, weight: .inf}", "[{name: l1, weight: 0}]"]  # fmt: skip


def reading(type):
    """How a type reads a value; its limits and names are compared afterwards."""
    inside = [type.element] if isinstance(type, ListOf) else []
    inside += type.fields.values() if isinstance(type, MappingOf) else []
    own = [getattr(type, name, None) for name in ("check", "secret", "may_be_infinite")]
    return type.__class__, *own, *map(reading, inside)


ONE_OF_EACH_READING = {reading(key.type): name for name, key in KEYS.items()}.values()


@pytest.mark.parametrize("name", ONE_OF_EACH_READING)
def test_an_extreme_value_is_shown_or_refused_in_one_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for text in EXTREMES:
        code = main(["config", name, text, name])
        shown, errors = capsys.readouterr()
        if code == 0:
            assert shown.startswith(f"{name}: ") and errors == ""
        else:
            assert (code, errors.count("\n")) == (2, 1), text
            assert name in errors and len(errors) < 1000, text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../outside", "/outside", "a/b", "a\0b", "a.", "a ", "-a", "x" * 121]
)
def test_a_name_that_is_no_safe_folder_is_refused(name):
    with pytest.raises(UserError, match=r"RUN\.NAME"):
        load_config({"RUN": {"NAME": name}})


@pytest.mark.parametrize("name", ["RUN.ROOT", "CACHE.ROOT"])
def test_a_folder_for_outputs_cannot_be_left_out(name):
    with pytest.raises(UserError, match=f"{name} must be a path.*it is empty"):
        load_config({}, {name: ""})


def test_a_loop_of_links_and_an_unknown_user_are_named(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for place in (tmp_path / "loop" / "x", "~nosuchuser/x"):
        with pytest.raises(UserError, match=r"loop|no such user"):
            load_config({"DATA": {"ROOT": str(place)}})


SECRET_URLS = [
    "postgresql://me:hunter2@h/d",
    "postgresql://me:hun/ter2@h/d",
    "postgresql://me:h#unter2@h/d",
    "postgresql+psycopg://me:h?un@ter2@h/d",
    "postgresql://me@h/d?password=hunter2",
    "postgresql://me@h/d?sslPassword=hunter2",
    "[postgresql://me:hunter2@h/d]",
]


@pytest.mark.parametrize("url", SECRET_URLS)
@pytest.mark.parametrize("key", ["STUDY.STORAGE", "STUDY", "SEARCH.STUDY.STORAGE"])
def test_a_password_in_a_databases_url_is_refused_and_not_repeated(url, key, tmp_path):
    with pytest.raises(UserError) as raised:
        load_config({}, [key, url])
    assert "ter2" not in str(raised.value)
    if key == "STUDY.STORAGE" and "[" not in url:
        assert "PGPASSWORD" in str(raised.value) and "~/.pgpass" in str(raised.value)
    file = tmp_path / "secret.yaml"
    file.write_text(f"STUDY: {{STORAGE: {json.dumps(url)}}}\n")
    with pytest.raises(UserError) as raised:
        load_config(file)
    assert "ter2" not in str(raised.value)


@pytest.mark.parametrize("name", ["$DB_PASSWORD", "${DB_PASSWORD}"])
def test_a_databases_url_may_name_the_passwords_variable(name):
    url = f"postgresql://me:{name}@h/d"
    cfg = load_config({}, ["STUDY.STORAGE", url])
    assert url == cfg.STUDY.STORAGE
    for text in (url.replace("@h", "x@h"), url.lower(), f"postgresql://me@h/d?password={name}"):
        with pytest.raises(UserError, match="holds a password"):
            load_config({}, ["STUDY.STORAGE", text])


def test_a_batch_of_too_many_pixels_is_refused():
    sizes = {"CACHE": {"HEIGHT": 8192, "WIDTH": 8192}}
    load_config(sizes | {"LOADER": {"BATCH": 32}})
    with pytest.raises(UserError, match=r"LOADER\.BATCH 33 of CACHE\.HEIGHT 8192"):
        load_config(sizes | {"LOADER": {"BATCH": 33}})


def test_a_loss_without_any_weight_is_refused():
    with pytest.raises(UserError, match=r"LOSS\.TERMS: every weight is 0"):
        load_config({"LOSS": {"TERMS": [{"name": "l1", "weight": 0}]}})


def test_every_group_has_a_meaning():
    assert all(len(meaning) > 3 for meaning in GROUPS.values())


COMMANDS = """
import json, os, sys, time
from zoerefine.cli import load
found = []
for verb in ("train", "search", "check", "profile"):
    command = load(verb)
    for key, value in json.load(open(sys.argv[1])):
        start = time.process_time()
        try:
            command(["--config", sys.argv[2], key, value])
            found.append([verb, key, value, "accepted"])
        except Exception as error:
            if type(error).__name__ != "UserError" or key not in str(error):
                found.append([verb, key, value, repr(error)])
        if time.process_time() - start > 1:
            found.append([verb, key, value, "slow"])
        if os.listdir():
            found.append([verb, key, value, os.listdir()])
heavy = {"torch", "optuna", "cv2", "sqlalchemy", "scipy"}
print(json.dumps([found, sorted(heavy & set(sys.modules))]))
"""


def test_commands_refuse_every_wrong_value_at_once_and_write_nothing(tmp_path):
    pairs = [
        (name, json.dumps(next(v for v in wrong_values(key.type) if v == v)))
        for name, key in KEYS.items()
    ]
    pairs.append(("SEARCH.TRAIN.LR", "[]"))
    (tmp_path / "pairs.json").write_text(json.dumps(pairs))
    (tmp_path / "empty.yaml").write_text("")
    folder = tmp_path / "folder"
    folder.mkdir()
    files = (tmp_path / "pairs.json", tmp_path / "empty.yaml")
    done = run_new_python(COMMANDS, *files, cwd=folder)
    assert json.loads(done.stdout) == [[], []]


def test_the_type_that_checkers_see_is_the_type_of_the_value():
    for group in fields(Config):
        for one in fields(group.type) if not group.metadata else [group]:
            expected = get_origin(one.type) or one.type
            assert isinstance(one.metadata["default"], expected), one.name
