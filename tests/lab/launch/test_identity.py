"""Which launches are the same: by their config and overrides."""

import pytest

from zoerefine.base.yaml.read import load_yaml
from zoerefine.lab.launch.identity import launch_settings, quoted_switches


def launched(config, *overrides, module="zoerefine.train"):
    return launch_settings(config, overrides, module)


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


@pytest.mark.parametrize("pair", ["no 'no'", "On 'On'", "[off] ['off']"])
def test_a_switch_in_quotes_is_another_job(pair):
    """Both are one value in YAML 1.2, by which the settings are read; not so for PyYAML."""
    texts = [f"v: {value}\nt: !!python/tuple [1]\n" for value in pair.split()]
    settings = [launched(load_yaml(text), module="theirs.train") for text in texts]
    assert settings[0] == settings[1]
    found = [quoted_switches(load_yaml(text), text.encode()) for text in texts]
    assert found == [[], ["v"]]


def test_other_configs_have_no_switches_in_quotes():
    for text in ("v: 1e-4\nw: 'a'\nx: yes\n", "[1]", "{"):
        tree = {} if text == "{" else load_yaml(text)
        assert quoted_switches(tree if isinstance(tree, dict) else {}, text.encode()) == []
