"""Which runs are the same: by their config, for a training, a group, a study and a launch."""

import pytest

from zoerefine.base import identity
from zoerefine.base.config import defaults, load_config, to_dict
from zoerefine.base.config.schema import GROUPS, KEYS, SEARCH
from zoerefine.base.yaml.keys import flatten


def tree(*words):
    return to_dict(load_config({}, list(words)))


def test_the_table_names_only_keys_that_exist():
    assert set(identity.ROLES) <= {*KEYS, *GROUPS, SEARCH}


def test_every_training_key_decides_results_unless_the_table_names_it():
    others = [key for key in KEYS if identity.role_of(key) is not identity.Role.RESULT]
    assert {key.partition(".")[0] for key in others} == {
        "RUN", "DATA", "CACHE", "LOADER", "TRAIN", "STUDY", "CLUSTER"}  # fmt: skip
    for key in (
        "SEED",
        "DATA.SPLIT",
        "CACHE.MODE",
        "POINTS.EVALUATED",
        "TRAIN.PRECISION",
        "MODEL.OPTIONS.depth",
    ):
        assert identity.role_of(key) is identity.Role.RESULT
    assert identity.role_of("OF.ANOTHER.VERSION") is identity.Role.RESULT


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
    assert identity.training_digest(tree(*words)) == identity.training_digest(tree())


@pytest.mark.parametrize(
    "words",
    [("SEED", "1"), ("TRAIN.LR", "0.1"), ("MODEL.OPTIONS.depth", "3"), ("LOADER.BATCH", "3")],
)
def test_what_decides_the_result_is_another_training(words):
    assert identity.training_digest(tree(*words)) != identity.training_digest(tree())


def test_a_group_is_a_training_without_its_seed():
    assert identity.group_settings(tree("SEED", "1")) == identity.group_settings(tree())
    assert identity.group_settings(tree("TRAIN.LR", "0.1")) != identity.group_settings(tree())


def test_a_study_differs_by_what_is_searched_and_not_by_its_budget():
    assert identity.study_settings(tree("STUDY.TRIALS", "7")) == identity.study_settings(tree())
    for words in (("SEARCH.TRAIN.LR", "[0.1]"), ("STUDY.EPOCHS", "3"),
                  ("STUDY.DEVICES", "2"), ("SEED", "1")):  # fmt: skip
        assert identity.study_settings(tree(*words)) != identity.study_settings(tree())


def launched(config, *overrides, module="zoerefine.train"):
    return identity.launch_settings(config, overrides, module)


def test_a_launch_is_the_same_however_its_settings_are_given():
    one = launched({"TRAIN": {"LR": 0.1, "EPOCHS": 3}})
    assert one == launched({"TRAIN": {"LR": 0.2}}, "TRAIN.EPOCHS", "3", "TRAIN.LR", "0.1")
    assert one == launched({"TRAIN": {"LR": 0.1, "EPOCHS": 3, "LOG_EVERY": 1}})


def test_a_launch_differs_by_its_data_and_its_budget():
    nothing = launched({})
    for words in (("DATA.ROOT", "a"), ("STUDY.TRIALS", "30"), ("SEARCH", "{SEED: [1]}")):
        assert launched({}, *words) != nothing


def test_every_key_of_another_repositorys_job_decides():
    config = {"RUN": {"NAME": "a"}, "LOADER": {"THREADS": 1}}
    for module in ("tools/train.py", "theirs.train"):
        one = launched(config, module=module)
        assert one != launched({**config, "LOADER": {"THREADS": 2}}, module=module)
        assert one != launched(config, "x", "1", module=module)


def test_a_tree_is_flattened_to_its_leaves():
    nested = {"A": {"B": {"C": 1}, "L": [{"x": 1}], "E": {}}, "D": 2}
    assert flatten(nested) == {"A.B.C": 1, "A.L": [{"x": 1}], "D": 2}
    assert flatten({"a": {"b": 1}}, "/", "val") == {"val/a/b": 1}
    assert set(flatten(to_dict(defaults()))) == {*KEYS} - {"MODEL.OPTIONS"}
