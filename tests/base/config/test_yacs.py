"""Our reader of configs beside YACS's own: the same file gives both the same tree."""

import json
import string
import tempfile
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st
from yacs.config import CfgNode

from zoerefine.base.config import defaults, load_config, to_dict
from zoerefine.base.config.schema import KEYS
from zoerefine.base.config.value_types import (
    Flag,
    Integer,
    ListOf,
    MappingOf,
    Number,
    OneOf,
    OpenMapping,
)
from zoerefine.base.errors import UserError
from zoerefine.base.yaml.keys import set_value
from zoerefine.base.yaml.write import dump_yaml

# YACS refuses keys that no default has, and knows nothing of the user's folder.
NAMES = [
    name for name, key in KEYS.items() if not (key.is_path or isinstance(key.type, OpenMapping))
]
LIMIT = 1e6  # of a number that has no bound of its own


def values_of(type):
    """Values that a type may allow."""
    if isinstance(type, Integer):
        low, high = type.at_least, type.at_most
        return st.integers(-LIMIT if low is None else low, LIMIT if high is None else high)
    if isinstance(type, Number):
        low = max((x for x in (type.at_least, type.above) if x is not None), default=-LIMIT)
        high = min((x for x in (type.at_most, type.below) if x is not None), default=LIMIT)
        return st.floats(low, high)
    if isinstance(type, Flag):
        return st.booleans()
    if isinstance(type, OneOf):
        return st.sampled_from(sorted(type.names))
    if isinstance(type, ListOf):
        return st.lists(values_of(type.element), min_size=type.at_least, max_size=3)
    if isinstance(type, MappingOf):
        return st.fixed_dictionaries({name: values_of(one) for name, one in type.fields.items()})
    return st.text(string.ascii_letters + string.digits + " _.:#'-", max_size=12).filter(is_text)


def is_text(value):
    """YACS takes a quoted text that is a literal of Python ('0', '-1') for the literal."""
    return isinstance(CfgNode._decode_cfg_value(value), str)


@given(st.data())
def test_a_file_gives_the_tree_that_yacs_reads(data):
    names = data.draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    tree = {}
    for name in names:
        group, _, word = name.rpartition(".")
        node = tree.setdefault(group, {}) if group else tree
        node[word] = data.draw(values_of(KEYS[name].type), label=name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.yaml")
        file.write_text(dump_yaml(tree))
        try:
            ours = to_dict(load_config(file))
        except UserError:  # values that exclude each other, or a text that is not allowed
            assume(False)
        theirs = defaults()
        theirs.merge_from_file(file)
    for name, key in KEYS.items():
        if key.is_path:
            for one in (ours, theirs):
                set_value(one, name, "")
    assert json.dumps(theirs, sort_keys=True) == json.dumps(ours, sort_keys=True)  # types, too
