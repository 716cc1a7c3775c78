"""Whatever a config holds: it loads, or it is refused with a sentence; nothing else happens."""

from hypothesis import given
from hypothesis import strategies as st

from zoerefine.base.config import load_config, save_config, to_dict
from zoerefine.base.config.schema import GROUPS, KEYS, SEARCH
from zoerefine.base.errors import UserError

WORDS = st.sampled_from(["low", "high", "step", "log", "name", "weight", "NAME", "BASE", "OPTIONS"])
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["small", "l1", "tpe", "on", "1e-4"])
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
KEY = st.sampled_from([*KEYS, *GROUPS, SEARCH])


@given(st.dictionaries(KEY, VALUE, max_size=3), st.dictionaries(KEY, VALUE, max_size=2))
def test_any_tree_of_values(tmp_path_factory, overrides, search):
    for key, value in search.items():
        overrides[f"{SEARCH}.{key}"] = value
    try:
        cfg = load_config({}, overrides)
    except UserError as error:
        assert 10 < len(str(error)) < 1000
        return
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    save_config(cfg, path)
    assert to_dict(load_config(path)) == to_dict(cfg)


@given(
    KEY, st.text(max_size=20) | st.sampled_from(["[", "{a: *b}", "!!x y", "- 1\n- 2", "a: b: c"])
)
def test_any_word_of_a_command_line(key, text):
    try:
        load_config({}, [key, text])
    except UserError as error:
        assert 10 < len(str(error)) < 1000


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda data: data.decode("latin-1")))
def test_any_file(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    try:
        load_config(path)
    except UserError as error:
        assert str(path) in str(error)
