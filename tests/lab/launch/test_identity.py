"""Which launches are the same: by their config and overrides."""

from zoerefine.lab.launch.identity import launch_settings


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
