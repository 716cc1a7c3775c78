"""A study, its folder, its trials and its data belong together; others are refused by name."""

import shutil

import pytest

from tests.lab.search.conftest import SPACE
from zoerefine.base.errors import UserError
from zoerefine.depth.training.job import train_for_study
from zoerefine.lab.search.study.claims import claim_trial, complete
from zoerefine.lab.search.study.trials import trial_run
from zoerefine.lab.search.subject import TrialOutcome

OTHER = "{TRAIN: {LR: {low: 1.0e-9, high: 1.0e-8}}}"


@pytest.fixture
def begun(open_study):
    """A study with one trial that has a folder."""
    study = open_study(SPACE)
    claim = claim_trial(study, "a")
    claim.run.path.mkdir(parents=True)
    complete(study, claim, TrialOutcome({"abs_rel": 0.1}))
    return study


@pytest.mark.parametrize("space", [SPACE, OTHER])
def test_trials_of_a_study_whose_database_was_removed_are_not_adopted(begun, open_study, space):
    database = begun.run.path / "study.db"
    moved = database.rename(begun.run.path.parent / "moved.db")
    for _ in range(2):
        with pytest.raises(
            UserError, match="study holds trials of another study than tiny"
        ) as told:
            open_study(space)
        assert "\n" not in str(told.value)
    assert open_study(SPACE, "STUDY.STORAGE", f"sqlite:///{moved}").trials()
    shutil.rmtree(begun.run.path)
    assert open_study(space).trials() == []


def test_trials_in_the_folder_are_not_adopted_by_another_database(begun, open_study, tmp_path):
    with pytest.raises(UserError, match="holds trials of another study"):
        open_study(OTHER, "STUDY.STORAGE", f"sqlite:///{tmp_path}/other.db")


def test_a_folder_on_another_machine_joins_the_study_of_its_database(begun, open_study):
    url = f"sqlite:///{begun.run.path}/study.db"
    assert open_study(SPACE, "STUDY.STORAGE", url, folder="elsewhere").trials()


def test_a_study_goes_on_only_with_the_data_that_it_was_begun_with(open_study, monkeypatch):
    study = open_study(SPACE)
    study.bind_data()
    study.bind_data()
    monkeypatch.setattr(study.subject, "data_digest", lambda: "0" * 64)
    with pytest.raises(UserError, match=r"begun with other data: their digest is .* 0000"):
        study.bind_data()


def test_a_trials_folder_with_other_values_or_of_another_study_is_not_adopted(searched):
    study = searched("{MODEL: {MAX_LOG: [0.5, 1.0]}}", "STUDY.TRIALS", 2)
    first, second = (trial_run(study.run, number) for number in range(2))
    cfg = study.subject.trial_config(study.trials()[0].params)
    again = train_for_study(study.run, first, cfg, *study.subject.data)
    assert again == first.results()
    with pytest.raises(UserError, match="0001 belongs to another study, or to other code, data or"):
        train_for_study(study.run, second, cfg, *study.subject.data)
    shutil.copytree(first.path, study.run.path / "trials" / "0007")
    assert train_for_study(study.run, trial_run(study.run, 7), cfg, *study.subject.data) == again
    second.provenance_file.unlink()
    with pytest.raises(UserError, match=r"has no provenance\.json"):
        train_for_study(study.run, second, cfg, *study.subject.data)


def test_a_study_goes_on_only_with_as_many_processes_a_trial(open_study):
    open_study(SPACE)
    with pytest.raises(UserError, match=r"other settings: .*\n  STUDY\.DEVICES: 1 there, 2 here$"):
        open_study(SPACE, "STUDY.DEVICES", 2)
    assert open_study(SPACE, "STUDY.WORKERS", 2).trials() == []
