"""The search space: mirrors the config, is checked against it, and nothing else is special."""

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yacs.config import CfgNode

from zoerefine.config import defaults
from zoerefine.errors import UserError
from zoerefine.search.space import read_space, with_values


def space_of(tree):
    cfg = defaults()
    cfg.SEARCH = CfgNode(tree)
    return read_space(cfg)


def test_lists_and_ranges_become_typed_values():
    terms = [[{"name": "l1", "weight": 1.0}], [{"name": "mse", "weight": 1.0}]]
    space = space_of(
        {
            "TRAIN": {"LR": {"low": 1e-4, "high": "1e-2", "log": True}, "CLIP": [1, 2]},
            "MODEL": {"BASE": {"low": 8, "high": 32, "step": 8}, "NAME": ["small", "unet"]},
            "LOSS": {"TERMS": terms},
        }
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        trial = study.ask()
        values = {parameter.key: parameter.suggest(trial) for parameter in space}
        assert 1e-4 <= values["TRAIN.LR"] <= 1e-2
        assert values["TRAIN.CLIP"] in (1.0, 2.0)
        assert isinstance(values["TRAIN.CLIP"], float)
        assert values["MODEL.BASE"] in (8, 16, 24, 32)
        assert values["LOSS.TERMS"] in terms
        cfg = with_values(defaults(), values)
        assert values["MODEL.NAME"] == cfg.MODEL.NAME
        assert not cfg.SEARCH


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({}, "SEARCH is empty"),
        ({"TRAIN": {"LRR": [1.0]}}, r"TRAIN\.LRR is no config key"),
        ({"TRAIN": {"LR": []}}, r"SEARCH\.TRAIN\.LR is an empty list"),
        ({"TRAIN": {"LR": ["fast"]}}, r"TRAIN\.LR must be float"),
        ({"TRAIN": {"LR": 0.1}}, r"TRAIN\.LR must be a list or"),
        ({"TRAIN": {"LR": {"low": 2, "high": 1}}}, r"low 2\.0 lies above high 1\.0"),
        ({"TRAIN": {"LR": {"low": 1}}}, r"a range is \{low, high, log, step\}"),
        ({"TRAIN": {"LR": {"low": 0, "high": 1, "log": True}}}, "needs low above 0"),
        ({"TRAIN": {"EPOCHS": {"low": 1, "high": 2.5}}}, r"TRAIN\.EPOCHS\.high must be int"),
        ({"MODEL": {"NAME": {"low": 1, "high": 2}}}, "a range needs a number"),
        ({"TRAIN": {"CLIP": [1, 1.0]}}, "lists a value twice"),
        ({"TRAIN": [1]}, r"SEARCH\.TRAIN is a group of keys"),
        ({"STUDY": {"TRIALS": [1, 2]}}, "no config key that can be searched"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tree, message):
    with pytest.raises(UserError, match=message):
        space_of(tree)


@given(low=st.floats(1e-6, 1e3), high=st.floats(1e-6, 1e3), log=st.booleans())
def test_any_range_is_kept_or_refused(low, high, log):
    tree = {"TRAIN": {"LR": {"low": low, "high": high, "log": log}}}
    if low > high:
        with pytest.raises(UserError, match="lies above"):
            space_of(tree)
        return
    (parameter,) = space_of(tree)
    value = parameter.suggest(optuna.create_study().ask())
    assert low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
