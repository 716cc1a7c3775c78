"""SEARCH is checked when a config is loaded: every value that a trial may get is allowed."""

import math

import pytest

from zoerefine.base.config import load_config
from zoerefine.base.config.searched_keys import read_search
from zoerefine.base.errors import UserError


def search(tree):
    return load_config({"SEARCH": tree}).SEARCH


def test_values_get_the_types_of_their_keys():
    terms = [[{"name": "l1", "weight": {"low": 0, "high": 1}}]]
    found = search(
        {
            "TRAIN": {"CLIP": [1, 2], "LR": {"low": "1e-4", "high": 1, "log": "yes"}},
            "MODEL": [{"BASE": 8, "MAX_LOG": 1}, {"NAME": "guided", "BASE": [16, 32]}],
            "LOSS": {"TERMS": terms},
        }
    )
    assert found.TRAIN.LR == {"low": 1e-4, "high": 1.0, "log": True}
    assert [type(one) for one in found.TRAIN.CLIP] == [float, float]
    assert type(found.MODEL[0]["MAX_LOG"]) is float
    assert found.LOSS.TERMS[0][0]["weight"] == {"low": 0.0, "high": 1.0}
    assert read_search(found) == found


def test_a_networks_own_options_are_searched():
    found = search({"MODEL": {"OPTIONS": {"depth": [2, 3], "drop": {"low": 0.0, "high": 0.5}}}})
    assert found.MODEL.OPTIONS.depth == [2, 3]
    branches = search({"MODEL": [{"NAME": "guided", "OPTIONS": {"depth": [2, 3], "act": "relu"}}]})
    assert branches.MODEL[0]["OPTIONS"] == {"depth": [2, 3], "act": "relu"}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"TRAIN": {"LR": [0.1, -1.0]}}, r"SEARCH\.TRAIN\.LR\.1 must be a number from 0 to 1e\+30"),
        ({"TRAIN": {"EMA": {"low": 0.9, "high": 1}}}, r"SEARCH\.TRAIN\.EMA\.high must be a number"),
        ({"MODEL": {"NAME": ["small", "nope"]}}, r"SEARCH\.MODEL\.NAME\.1 must be one of"),
        ({"MODEL": [{"BASE": [8, 2]}]}, r"SEARCH\.MODEL\.0\.BASE\.1 must be an integer"),
        ({"LOSS": {"TERMS": [[{"name": "l2", "weight": 1}]]}}, r"TERMS\.0\.0\.name must be one of"),
        ({"LOSS": {"TERMS": [[]]}}, r"SEARCH\.LOSS\.TERMS\.0 must be a list"),
        ({"MODEL": {"OPTIONS": {"depth": [{"a": 1}]}}}, r"OPTIONS\.depth"),
        ({"MODEL": {"OPTIONS": {"a b": [1]}}}, r"OPTIONS"),
        ({"MODEL": {"OPTIONS": {"x": {"low": "a", "high": 1}}}}, r"OPTIONS\.x\.low"),
        ({"TRAIN": {"LR": [math.nan]}}, r"SEARCH\.TRAIN\.LR\.0"),
        ({"RUN": {"NAME": ["a"]}}, r"SEARCH\.RUN cannot be searched"),
        ({"NONE": [1]}, r"SEARCH\.NONE cannot be searched"),
        ([1], r"SEARCH must mirror the config tree"),
        ({"SEED": {"low": 0, "high": 2**62}}, r"SEARCH\.SEED has too many values"),
        ({"TRAIN": {"CLIP": {"low": 0.1, "high": 1e300, "step": 1e-300}}}, r"has too many values"),
        ({"MODEL": {"OPTIONS": {"x": {"low": -1e308, "high": 1e308}}}}, r"OPTIONS\.x is longer"),
        ({"MODEL": {"OPTIONS": {"x": {"low": -(10**400), "high": 1}}}}, r"OPTIONS\.x"),
    ],
)
def test_a_value_that_no_trial_may_have_is_refused(tree, message):
    with pytest.raises(UserError, match=message):
        search(tree)
