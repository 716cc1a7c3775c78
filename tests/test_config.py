"""Configurations: typed merge, exact dump, errors that name the key."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.config import (
    defaults,
    load_config,
    resolve_path,
    save_config,
    to_dict,
)
from zoerefine.errors import UserError


def write(folder, text):
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_file_and_pairs_override_the_defaults_in_that_order(tmp_path):
    path = write(tmp_path, "TRAIN: {LR: 1e-4, EPOCHS: 3}\n")
    cfg = load_config(path, ["TRAIN.EPOCHS", "7", "MODEL.NAME", "small"])
    assert (cfg.TRAIN.LR, cfg.TRAIN.EPOCHS, cfg.MODEL.NAME) == (1e-4, 7, "small")
    assert cfg.TRAIN.CLIP == defaults().TRAIN.CLIP


def test_an_int_is_taken_for_a_float_and_nothing_else(tmp_path):
    assert load_config(write(tmp_path, "TRAIN: {LR: 1}")).TRAIN.LR == 1.0
    with pytest.raises(UserError, match=r"yaml:1: TRAIN\.EPOCHS must be an integer .* got 2\.5"):
        load_config(write(tmp_path, "TRAIN: {EPOCHS: 2.5}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MODEL: {NAMEE: small}", r"no config key MODEL\.NAMEE; did you mean MODEL\.NAME\?"),
        ("MODEL: small", "MODEL is a group of keys"),
        ("TRAIN: {LR: fast}", r"TRAIN\.LR must be a number of at least 0, got 'fast'"),
        ("TRAIN: {DETERMINISTIC: 1}", r"TRAIN\.DETERMINISTIC must be true or false"),
        ("SEED: true", "SEED must be an integer"),
        ("- 1", "must be a mapping"),
        ("a: [", "is not valid YAML"),
        ("SEED: !!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_bad_config_is_one_sentence_with_the_key(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load_config(write(tmp_path, text))


def test_a_missing_file_and_a_lonely_key_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no config file .*absent\.yaml"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(UserError, match=r"'TRAIN\.LR' has no value"):
        load_config(write(tmp_path, ""), ["TRAIN.LR"])


AWKWARD = st.sampled_from(
    ["", "a # b", "yes", "2020-01-01", "051", "lr: 3", "null", "1e-4", "é\n", "a\x85b"]
)


TEXT = AWKWARD | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(name=TEXT, lr=st.floats(0, 1e9, exclude_min=True))
def test_saved_configs_load_back_to_the_same_values(tmp_path_factory, name, lr):
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    cfg = defaults()
    cfg.DATA.SCENES, cfg.MODEL.OPTIONS = [name], type(cfg)({"text": name})
    cfg.TRAIN.LR = lr
    cfg.RUN.ROOT, cfg.CACHE.ROOT = "/runs", "/caches"
    cfg.SEARCH = type(cfg)({"TRAIN": {"LR": [1e-4, lr]}})
    save_config(cfg, path)
    assert to_dict(load_config(path)) == to_dict(cfg)
    assert yaml.safe_load(path.read_text()) == to_dict(cfg)


def test_relative_paths_mean_the_callers_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOEREFINE_CALLER_FOLDER", str(tmp_path))
    assert resolve_path("data/x") == tmp_path / "data" / "x"
    assert str(resolve_path("/data/x")) == "/data/x"


def test_off_is_a_word_where_a_word_is_due_and_false_where_a_flag_is(tmp_path):
    path = write(tmp_path, "CACHE: {MODE: off}\nTRAIN: {DETERMINISTIC: off}\n")
    cfg = load_config(path)
    assert (cfg.CACHE.MODE, cfg.TRAIN.DETERMINISTIC) == ("off", False)
    cfg = load_config(path, ["CACHE.MODE", "off", "TRAIN.DETERMINISTIC", "yes"])
    assert (cfg.CACHE.MODE, cfg.TRAIN.DETERMINISTIC) == ("off", True)
    save_config(cfg, tmp_path / "saved.yaml")
    assert load_config(tmp_path / "saved.yaml") == cfg
