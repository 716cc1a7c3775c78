"""Loading configs: typed merge, exact dump, and errors that name the key and its place."""

import math
import os
import sys
import time

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import run_program
from zoerefine.base.config import defaults, load_config, merge, save_config, to_dict
from zoerefine.base.config.loading import resolve_config
from zoerefine.base.config.paths import resolve_path
from zoerefine.base.errors import UserError


@pytest.fixture
def write(tmp_path):
    """Write a config file: write("TRAIN: {LR: 1}") -> its path."""

    def make(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return make


def test_file_and_pairs_override_the_defaults_in_that_order(write):
    path = write("TRAIN: {LR: 1e-4, EPOCHS: 3}\n")
    cfg = load_config(path, ["TRAIN.EPOCHS", "7", "MODEL.NAME", "guided"])
    assert (cfg.TRAIN.LR, cfg.TRAIN.EPOCHS, cfg.MODEL.NAME) == (1e-4, 7, "guided")
    assert cfg.TRAIN.CLIP == defaults().TRAIN.CLIP


def test_a_mapping_is_read_like_a_file(write):
    tree = {"TRAIN": {"LR": 1}, "DATA": {"TEST_SCENES": ["07", 8]}, "SEARCH": {"SEED": [1, 2]}}
    cfg = load_config(tree)
    assert (cfg.TRAIN.LR, cfg.DATA.TEST_SCENES, cfg.SEARCH.SEED) == (1.0, ["07", "8"], [1, 2])
    with pytest.raises(UserError, match=r"config: TRAIN\.LR must be"):
        load_config({"TRAIN": {"LR": -1}})


def test_paths_and_numbers_of_numpy_are_values_like_others(tmp_path):
    tree = {"DATA": {"ROOT": tmp_path}, "TRAIN": {"LR": np.float64(1e-3), "EPOCHS": np.int64(3)}}
    cfg = load_config(tree, {"SEED": np.uint8(7), "RUN.ROOT": tmp_path / "r"})
    found = cfg.DATA.ROOT, cfg.RUN.ROOT
    assert found == (str(tmp_path), str(tmp_path / "r"))
    assert (cfg.TRAIN.LR, cfg.TRAIN.EPOCHS, cfg.SEED) == (1e-3, 3, 7)
    assert [type(cfg.TRAIN.LR), type(cfg.SEED)] == [float, int]
    with pytest.raises(UserError, match=r"TRAIN\.EPOCHS must be"):
        load_config({"TRAIN": {"EPOCHS": np.float32(2.5)}})


def test_overrides_may_be_a_mapping_of_keys(write):
    cfg = load_config(write("SEED: 1"), {"TRAIN.LR": 1, "MODEL.OPTIONS": {"depth": 2}})
    assert (cfg.SEED, cfg.TRAIN.LR, cfg.MODEL.OPTIONS.depth) == (1, 1.0, 2)
    assert load_config(cfg, {"SEED": 2}).TRAIN.LR == 1.0
    with pytest.raises(UserError, match=r"overrides: no config key TRAIN\.LRR"):
        load_config({}, {"TRAIN.LRR": 1})


def test_an_int_is_taken_for_a_float_and_nothing_else(write):
    assert load_config(write("TRAIN: {LR: 1}")).TRAIN.LR == 1.0
    with pytest.raises(UserError, match=r"yaml:1: TRAIN\.EPOCHS must be an integer .* got 2\.5"):
        load_config(write("TRAIN: {EPOCHS: 2.5}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MODEL: {NAMEE: small}", r"no config key MODEL\.NAMEE; did you mean MODEL\.NAME\?"),
        ("LR: 3", r"no config key LR; did you mean TRAIN\.LR\?"),
        ("TRAIN.LR: 3", r"write TRAIN\.LR as nested keys"),
        ("MODEL: small", "MODEL is a group of keys"),
        ("MODEL: {NAME: smal}", r"MODEL\.NAME must be one of .* got 'smal'; did you mean small"),
        ("TRAIN: {LR: fast}", r"TRAIN\.LR must be a number from 0 to 1e\+30, got 'fast'"),
        ("- 1", "must be a mapping"),
        ("a: [", "is not valid YAML"),
        ("SEED: !!python/object/apply:os.system ['true']", "tag .* is not allowed"),
        ("TRAIN: {LR: 1}\nSEED: 1\nTRAIN: {LR: 2}", "TRAIN occurs twice, in line 1 and in line 3"),
        ("[" * 100_000, "levels deep"),
        (
            "LOSS:\n  TERMS: [{name: l1, weight: 1},\n    {name: l1, weight: -1}]",
            r"config\.yaml:3: LOSS\.TERMS\.1\.weight must be a number from 0 to 1e\+06, got -1",
        ),
        (
            "TRAIN:\n  LR: [1e-3, 1e-4]",
            r"config\.yaml:2: TRAIN\.LR takes one value, got `LR: \[1e-3, 1e-4\]`; a list of "
            r"values to try belongs under SEARCH",
        ),
    ],
)
def test_bad_config_is_one_sentence_with_the_key(write, text, message):
    with pytest.raises(UserError, match=message):
        load_config(write(text))


def test_an_alias_bomb_on_real_keys_is_refused_quickly(write):
    text = "SEARCH:\n  DATA:\n    SCENES: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
        f"    CLASSES{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 12)
    )
    start = time.process_time()
    with pytest.raises(UserError, match="aliases expanded"):
        load_config(write(text))
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["DATA.VAL_FRACTION", "0.5", "DATA.TEST_FRACTION", "0.5"], "leave no scene to train on"),
        (["LOADER.HEIGHT", "96"], r"LOADER\.HEIGHT 96 and LOADER\.WIDTH 0: set both"),
        (["LOADER.ROTATE_EVERY", "1"], r"needs LOADER\.ROTATE_SCENES"),
        (["LOADER.TIER", "ram", "CACHE.MODE", "off"], r"LOADER\.TIER ram needs a packed cache"),
        (["TRAIN.COMPILE", "reduce-overhead", "TRAIN.ACCUMULATE", "2"], "CUDA graphs"),
        (["MODEL.NAME", "unet", "MODEL.BASE", "7"], r"MODEL\.BASE 7: .* at least 8"),
        (["TRAIN.COMPILE", "max-autotune"], r"TRAIN\.DETERMINISTIC false"),
    ],
)
def test_values_that_exclude_each_other_are_refused(words, message):
    with pytest.raises(UserError, match=message):
        load_config({}, words)


def test_a_training_that_ignores_search_needs_no_validation_scenes():
    cfg = load_config({}, ["SEARCH.TRAIN.LR", "[1]", "DATA.VAL_FRACTION", "0"])
    assert cfg.SEARCH and not cfg.DATA.VAL_FRACTION


def test_values_that_exclude_each_other_are_named_with_their_places(write):
    path = write("LOADER:\n  BATCH: 2\n  TIER: ram\n")
    with pytest.raises(UserError, match=r"\(LOADER\.TIER: .*yaml:3, CACHE\.MODE: command line\)"):
        load_config(path, ["CACHE.MODE", "off"])


def test_a_missing_file_and_a_key_without_a_value_are_named(tmp_path, write):
    with pytest.raises(UserError, match=r"no config file .*absent\.yaml"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(UserError, match=r"'TRAIN\.LR' has no value"):
        load_config(write(""), ["TRAIN.LR"])


def test_a_config_that_a_command_prints_is_read_and_one_in_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")

    def command(words):
        text = f"{sys.executable} -m zoerefine {words}"
        return run_program(["bash", "-c", text], None, cwd=tmp_path, timeout=60)

    for words in ("train --config pipe.yaml", "search --config pipe.yaml --plan"):
        done = command(words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "pipe.yaml is a pipe: give a file" in done.stderr
    printed = "--config <(echo 'STUDY: {TRIALS: 7}')"
    assert "TRIALS: 7" in command(f"config {printed}").stdout
    searched = command(f"search {printed} --search 'TRAIN.LR=[1e-3, 1e-4]' --plan")
    assert "2 of 7 trials" in searched.stdout, searched.stderr


@pytest.mark.parametrize("words", [[], ["DATA.TEST_SCENES", "[07, 08]", "RUN.NAME", "051"]])
def test_names_stay_as_they_are_written(write, words):
    text = "RUN: {NAME: 051}\nDATA: {TEST_SCENES: [07, 08], SCENES: [1e3, yes, true]}\n"
    cfg = load_config(write("" if words else text), words)
    assert (cfg.RUN.NAME, cfg.DATA.TEST_SCENES) == ("051", ["07", "08"])
    if not words:
        assert cfg.DATA.SCENES == ["1e3", "yes", "true"]


def test_names_under_search_stay_as_they_are_written(write):
    cfg = load_config(write("SEARCH: {MODEL: {PRETRAINED: [07, 08]}}"))
    assert cfg.SEARCH.MODEL.PRETRAINED == ["07", "08"]


def test_a_networks_own_options_are_set_in_a_file_and_one_by_one(write):
    path = write("MODEL: {NAME: my.networks:Wide, OPTIONS: {depth: 2, act: relu}}")
    cfg = load_config(path, ["MODEL.OPTIONS.depth", "3", "MODEL.OPTIONS.widths", "[1, 2]"])
    assert dict(cfg.MODEL.OPTIONS) == {"depth": 3, "act": "relu", "widths": [1, 2]}
    for name in ("my networks:Wide", "my.networks", ":Wide", "my.networks:Wide()", "../x:Y"):
        with pytest.raises(UserError, match=r"MODEL\.NAME must be one of"):
            load_config({"MODEL": {"NAME": name}})


def test_the_origin_of_each_value_is_known(write):
    path = write("SEED: 1\nTRAIN:\n  LR: 0.1\n  EPOCHS: 2\n")
    origins = resolve_config(path, ["TRAIN.EPOCHS", "3"]).origins
    assert origins == {
        "SEED": f"{path}:1", "TRAIN.LR": f"{path}:3", "TRAIN.EPOCHS": "command line"
    }  # fmt: skip


AWKWARD = st.sampled_from(
    ["", "a # b", "yes", "2020-01-01", "051", "lr: 3", "null", "1e-4", "é\n", "a\x85b"]
)
TEXT = AWKWARD | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(name=TEXT, lr=st.floats(0, 1e9), seed=st.integers(0, 2**63 - 1), clip=st.floats(1e-9))
def test_saved_configs_load_back_to_the_same_values(tmp_path_factory, name, lr, seed, clip):
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    cfg = defaults()
    cfg.DATA.SCENES, cfg.MODEL.OPTIONS = [name], type(cfg)({"text": name})
    cfg.TRAIN.LR, cfg.SEED, cfg.TRAIN.CLIP = lr, seed, clip
    cfg.RUN.ROOT, cfg.CACHE.ROOT = "/runs", "/caches"
    cfg.SEARCH = type(cfg)({"TRAIN": {"LR": [1e-4, lr]}, "MODEL": {"OPTIONS": {"text": [name]}}})
    save_config(cfg, path)
    assert to_dict(load_config(path)) == to_dict(cfg)
    assert yaml.safe_load(path.read_text()) == to_dict(cfg)


def test_what_yaml_cannot_keep_is_not_saved(tmp_path):
    cfg = defaults()
    cfg.DATA.SCENES = ["\ud800"]
    with pytest.raises(UserError, match="cannot be written"):
        save_config(cfg, tmp_path / "config.yaml")
    assert not list(tmp_path.iterdir())


def test_values_are_checked_when_they_are_merged_in_code():
    cfg = defaults()
    merge(cfg, {"TRAIN": {"CLIP": math.inf}}, "benchmark")
    with pytest.raises(UserError, match=r"benchmark: TRAIN\.LR must be a number .* got nan"):
        merge(cfg, {"TRAIN": {"LR": math.nan}}, "benchmark")


def test_a_current_folder_that_was_removed_is_named(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UserError, match="runs: the current folder does not exist any more"):
        load_config({})


def test_relative_paths_mean_the_callers_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOEREFINE_CALLER_FOLDER", str(tmp_path))
    assert resolve_path("data/x") == tmp_path / "data" / "x"
    assert str(resolve_path("/data/x")) == "/data/x"
    with pytest.raises(UserError, match="no such user"):
        resolve_path("~nosuchuser/x")


def test_off_is_a_word_where_a_word_is_due_and_false_where_a_flag_is(tmp_path, write):
    path = write("CACHE: {MODE: off}\nTRAIN: {DETERMINISTIC: off}\n")
    cfg = load_config(path)
    assert (cfg.CACHE.MODE, cfg.TRAIN.DETERMINISTIC) == ("off", False)
    cfg = load_config(path, ["CACHE.MODE", "off", "TRAIN.DETERMINISTIC", "yes"])
    assert (cfg.CACHE.MODE, cfg.TRAIN.DETERMINISTIC) == ("off", True)
    save_config(cfg, tmp_path / "saved.yaml")
    assert load_config(tmp_path / "saved.yaml") == cfg
