"""Which runs are the same by their config: for a training, a group and a study."""

import pytest

from zoerefine.base import config_roles as roles
from zoerefine.base.config import defaults, load_config, to_dict
from zoerefine.base.config.schema import GROUPS, KEYS, SEARCH
from zoerefine.base.yaml.keys import flatten


def tree(*words):
    return to_dict(load_config({}, list(words)))


def test_the_table_names_only_keys_that_exist():
    assert set(roles.ROLES) <= {*KEYS, *GROUPS, SEARCH}


def test_every_training_key_decides_results_unless_the_table_names_it():
    others = [key for key in KEYS if roles.role_of(key) is not roles.Role.RESULT]
    assert {key.partition(".")[0] for key in others} == {
        "RUN", "DATA", "CACHE", "LOADER", "TRAIN", "STUDY", "CLUSTER"}  # fmt: skip
    for key in ("SEED", "DATA.SPLIT", "CACHE.MODE", "POINTS.EVALUATED", "TRAIN.PRECISION",
                "MODEL.OPTIONS.depth", "OF.ANOTHER.VERSION"):  # fmt: skip
        assert roles.role_of(key) is roles.Role.RESULT


@pytest.mark.parametrize(
    "words",
    [
        ("RUN.NAME", "other"),
        ("DATA.ROOT", "/elsewhere"),
        ("CACHE.ROOT", "/elsewhere"),
        ("LOADER.THREADS", "1"),
        ("TRAIN.LOG_EVERY", "1"),
        ("STUDY.TRIALS", "7"),
        ("CLUSTER.TIME", "2-00"),
        ("SEARCH.TRAIN.LR", "[0.1, 0.2]"),
    ],
)
def test_place_speed_record_and_search_are_the_same_training(words):
    assert roles.training_digest(tree(*words)) == roles.training_digest(tree())


@pytest.mark.parametrize(
    "words",
    [("SEED", "1"), ("TRAIN.LR", "0.1"), ("MODEL.OPTIONS.depth", "3"), ("LOADER.BATCH", "3")],
)
def test_what_decides_the_result_is_another_training(words):
    assert roles.training_digest(tree(*words)) != roles.training_digest(tree())


def test_a_group_is_a_training_without_its_seed():
    assert roles.group_settings(tree("SEED", "1")) == roles.group_settings(tree())
    assert roles.group_settings(tree("TRAIN.LR", "0.1")) != roles.group_settings(tree())


def test_a_study_differs_by_what_is_searched_and_not_by_its_budget():
    assert roles.study_settings(tree("STUDY.TRIALS", "7")) == roles.study_settings(tree())
    for words in (("SEARCH.TRAIN.LR", "[0.1]"), ("STUDY.EPOCHS", "3"),
                  ("STUDY.DEVICES", "2"), ("SEED", "1")):  # fmt: skip
        assert roles.study_settings(tree(*words)) != roles.study_settings(tree())


def test_a_tree_is_flattened_to_its_leaves():
    nested = {"A": {"B": {"C": 1}, "L": [{"x": 1}], "E": {}}, "D": 2}
    assert flatten(nested) == {"A.B.C": 1, "A.L": [{"x": 1}], "D": 2}
    assert flatten({"a": {"b": 1}}, "/", "val") == {"val/a/b": 1}
    assert set(flatten(to_dict(defaults()))) == {*KEYS} - {"MODEL.OPTIONS"}
