"""The YAML reader: version 1.2's values, places of values, bounds, and what is refused."""

import math
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.base.yaml.equal_values import same_data
from zoerefine.base.yaml.read import MOST_VALUES, YamlError, load_yaml, parse_yaml
from zoerefine.base.yaml.write import dump_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("Yes", "Yes"), ("off", "off"), ("n", "n"),
        ("true", True), ("FALSE", False), ("~", None), ("", None), ("Null", None),
        ("1e-4", 1e-4), ("051", 51), ("0o17", 15), ("0x1F", 31), ("+3", 3), (".5", 0.5),
        ("1_000", "1_000"), ("1:30", "1:30"), ("2020-01-01", "2020-01-01"), ("=", "="),
        ("-.inf", -math.inf), ("'on'", "on"), ('"1"', "1"), ("!!str 1", "1"),
        ("!!float 1", 1.0), ("!!int 7", 7), ("!!python/tuple [1, 2]", [1, 2]), ("! 1", "1"),
    ],
)  # fmt: skip
def test_scalars_mean_what_yaml_1_2_says(text, value):
    found = load_yaml(text)
    assert (found, type(found)) == (value, type(value))


def test_nan_is_read():
    assert math.isnan(load_yaml(".nan"))


def test_merge_keys_give_way_to_the_mappings_own_keys():
    text = "base: &b {a: 1, b: 1}\nmore: &m {b: 2, c: 2}\nrun: {<<: [*b, *m], a: 3}\n"
    assert load_yaml(text)["run"] == {"a": 3, "b": 1, "c": 2}


def test_every_value_has_its_line_and_a_scalar_its_characters():
    document = parse_yaml("A:\n  B: 051\n  L: [07,\n    {x: 1e-4}]\n", "f.yaml")
    assert document.where("A.B") == "f.yaml:2"
    assert document.where("A.L.1.x") == "f.yaml:4"
    assert document.where("A.NONE") == "f.yaml:2"
    assert [document.text(p) for p in ("A.B", "A.L.0", "A.L.1.x")] == ["051", "07", "1e-4"]
    assert document.quote("A.B") == "`B: 051`"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "key a occurs twice, in line 1 and in line 3"),
        ("x: {a: 1, 'a': 2}", "key a occurs twice"),
        ("a: !!python/name:os.system ''", "line 1: tag"),
        ("a: !include x", "tag !include is not allowed"),
        ("a: !!int x", "'x' is not a !!int"),
        ("? [1]\n: 2", "a key must be a single word"),
        ("a: &a [*a]", "contains itself"),
        ("a: *b", "undefined alias|no anchor"),
        ("--- 1\n--- 2", "second document"),
        ("<<: 1", "<< takes a mapping"),
        ("a: [", "line 1|line 2"),
        ("a: \x01", "not allowed|special characters|control characters"),
    ],
)
def test_what_is_refused_is_named_with_its_line(text, message):
    with pytest.raises(YamlError, match=message):
        load_yaml(text)


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x, x, x, x, x, x, x, x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 9)),
        "[" * 100_000,
        "{a: " * 10_000,
        "- " * 5_000,
        "[" + "1, " * (MOST_VALUES + 1) + "]",
    ],
    ids=["aliases", "lists", "mappings", "dashes", "many"],
)
def test_a_text_that_would_exhaust_memory_is_refused_quickly(text):
    start = time.process_time()
    with pytest.raises(YamlError, match=r"levels deep|values with its aliases"):
        load_yaml(text)
    assert time.process_time() - start < 10


AWKWARD = st.sampled_from(
    ["", "a # b", "yes", "2020-01-01", "051", "lr: 3", "null", "1e-4", "0o7", "é\n", "a\x85b", "<<"]
)
TEXT = AWKWARD | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
TREE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(TREE)
def test_what_is_written_reads_back_here_and_with_yaml_1_1(tree):
    text = dump_yaml(tree)
    assert same_data(load_yaml(text), tree)
    assert same_data(yaml.safe_load(text), tree)
