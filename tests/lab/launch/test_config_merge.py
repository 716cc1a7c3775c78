"""Overrides merged into a config file: exactly the named values change."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from zoerefine.base.errors import UserError
from zoerefine.base.yaml.read import load_yaml
from zoerefine.base.yaml.script_overrides import merge_overrides
from zoerefine.base.yaml.write import dump_yaml
from zoerefine.lab.launch.plan import parse_config

CONFIG = """\
# the first line
A: 1  # one
B:
  # inside
  LR: 0.1   # rate
  SIZE: !!python/tuple [3, 4] # size
  L:
  - a
  - b
  # after
  M: |
    text
    more
  E:
C: {x: 1, "y": 2}
D: {}
"""


def merged(text, *overrides, name="x.yaml"):
    return merge_overrides(Path(name), text.encode(), overrides).decode()


def test_only_the_named_value_changes_and_everything_else_stays_as_it_is_written():
    changed = merged(CONFIG, "B.LR", "1e-4", "A", "text: no")
    expected = CONFIG.replace("LR: 0.1 ", "LR: 0.0001 ").replace("A: 1", "A: {text: 'no'}")
    assert changed == expected
    # A reader of YAML 1.1 gets a number too, where `1e-4` would be a text.
    plain = merged(CONFIG.replace("!!python/tuple ", ""), "B.LR", "1e-4")
    assert yaml.safe_load(plain)["B"]["LR"] == 1e-4


@pytest.mark.parametrize("name", ["x.yaml", "x.json"])
def test_a_word_that_is_no_yaml_value_stays_as_it_is(name):
    """A comment would be null, `-` a list; beside a text, leading zeros and colons count."""
    words = {"color": "#ff0000", "file": "-", "id": "007", "note": "x: y", "empty": "", "n": "#1"}
    config = json.dumps({**dict.fromkeys(words, "abc"), "n": 3, "none": "abc", "depth": "auto"})
    given = [part for pair in words.items() for part in pair] + ["none", "null", "depth", "12"]
    changed = merged(config, *given, name=name)
    assert yaml.safe_load(changed) == words | {"none": None, "depth": 12}


def test_keys_that_are_numbers_are_replaced_and_added_as_numbers():
    """As in the class lists of YOLO's data files."""
    text = "names: {0: cat, 1: dog}\nlist:\n  5: a\n  x: b\n"
    changed = merged(text, "names.0", "bird", "+names.2", "cow", "list.5", "c", "+list.y", "d")
    assert changed == "names: {2: cow, 0: bird, 1: dog}\nlist:\n  y: d\n  5: c\n  x: b\n"
    with pytest.raises(UserError, match=r"has no key names\.3, .*did you mean names\.[012]"):
        merged(text, "names.3", "x")


def test_in_brackets_a_text_with_a_comma_is_quoted():
    changed = merged("a: {s: abc, t: 2}\nb: abc\n", "a.s", "1,000", "+a.x,y", "p, q", "b", "1,000")
    assert changed == "a: {'x,y': 'p, q', s: '1,000', t: 2}\nb: 1,000\n"
    assert load_yaml(changed) == {"a": {"x,y": "p, q", "s": "1,000", "t": 2}, "b": "1,000"}


def test_a_text_in_quotes_that_would_be_a_switch_stays_a_text():
    text = merged('mode: "off"\nplain: off\ncountry: \'no\'\n', *("mode", "on"), *("plain", "on"),
                  *("country", "yes"))  # fmt: skip
    assert yaml.safe_load(text) == {"mode": "on", "plain": True, "country": "yes"}


def test_a_switch_stays_a_switch_and_a_quoted_number_a_text():
    text = "flag: true\nzip: '007'\nver: \"1.10\"\nold: yes\nname: auto\nempty: ''\n"
    words = ("flag", "no", "zip", "08", "ver", "1.20", "old", "off", "name", "0.1", "empty", "3")
    changed = merged(text, *words)
    expected = {"flag": False, "zip": "08", "ver": "1.20", "old": False, "name": 0.1, "empty": 3}
    assert load_yaml(changed) == yaml.safe_load(changed) == expected
    assert json.loads(merged('{"a": true, "b": "no"}', "a", "off", "b", "on", name="x.json")) == {
        "a": False,
        "b": "on",
    }


@pytest.mark.parametrize("key", ["A", "B", "B.L", "B.M", "B.E", "B.SIZE", "C.x", "C.y", "C", "D"])
@pytest.mark.parametrize("value", ["7", "[a, b]", "{k: v}", "'#:'", "on"])
def test_every_form_of_a_value_can_be_replaced(key, value):
    tree = load_yaml(merged(CONFIG, key, value))
    expected = load_yaml(CONFIG)
    *groups, last = key.split(".")
    node = expected
    for group in groups:
        node = node[group]
    node[last] = load_yaml(value)
    assert tree == expected


@pytest.mark.parametrize(
    "text", [CONFIG, "", "# only a comment\n", "A: 1", "{A: 1}", "---\nA: 1\n"]
)
def test_a_plus_adds_a_key_with_its_groups(text):
    changed = merged(text, "+NEW.LR", "1", "+A2", "x", "+D.q", "2")
    expected = (load_yaml(text) or {}) | {"NEW": {"LR": 1}, "A2": "x", "D": {"q": 2}}
    assert load_yaml(changed) == expected
    assert merged(changed, "+NEW.LR", "1", "+A2", "x", "+D.q", "2") == changed


def test_a_key_that_the_config_lacks_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match=r"x\.yaml has no key B\.LT.*did you mean B\.L"):
        merged(CONFIG, "B.LT", "1")
    with pytest.raises(UserError, match=r"A of A\.x is not a group"):
        merged(CONFIG, "+A.x", "1")


@pytest.mark.parametrize(
    ("text", "key"),
    [("A: &x 1\nB: *x\n", "A"), ("? A\n: 1\n", "A"), ("A: &a {L: 1, M: 2}\nB: *a\n", "B.L")],
)
def test_a_value_that_other_keys_share_is_refused(text, key):
    with pytest.raises(UserError, match="cannot be set without changing other keys"):
        merged(text, key, "3")


def test_json_stays_json_and_other_files_are_refused():
    text = merged('{\t"a": {"b": 1},\n"s": "ü"}', "a.b", "1e-3", "+n", "x", name="x.json")
    assert json.loads(text) == {"a": {"b": 0.001}, "s": "ü", "n": "x"}
    with pytest.raises(UserError, match="neither YAML nor JSON"):
        merged("a = 1", "a", "2", name="x.toml")
    with pytest.raises(UserError, match="must be a mapping"):
        merged("[1]", "a", "2", name="x.json")


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_key_that_occurs_twice_is_an_error_with_both_lines(suffix):
    text = b'{\n\t"a": {"b": 1,\n\t\t"b": 2}}'.replace(b"\t", b"" if suffix == ".yaml" else b"\t")
    with pytest.raises(UserError, match="key b occurs twice, in line 2 and in line 3: keep one"):
        parse_config(Path(f"x{suffix}"), text)


KEYS = st.sampled_from(["a", "b c", "on", "1x", "ü", "#", "k: v", "null-ish"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    st.dictionaries(KEYS, LEAVES | st.lists(LEAVES, max_size=3), max_size=4),
    lambda inner: st.dictionaries(KEYS, inner | LEAVES, max_size=4),
    max_leaves=8,
)


@given(TREES, KEYS, LEAVES)
@example({}, "a", "\x85")  # a line break that YAML does not escape
@example({}, "a", {"k": "\u2028"})
def test_merging_gives_the_same_tree_as_setting_the_value(tree, key, value):
    if isinstance(tree.get(key), bool | str):  # which decides how the value is read, as above
        del tree[key]
    changed = merged(dump_yaml(tree), f"+{key}", dump_yaml(value).removesuffix("...\n"))
    assert load_yaml(changed) == tree | {key: value}
