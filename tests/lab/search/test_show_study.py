"""`zoerefine show STUDY`: how many trials there are, the best one, and where its config is."""

import pytest

from tests.lab.search.conftest import SPACE, configs_of_rates, end
from zoerefine.lab.search.study.claims import claim_trial, fail, prune
from zoerefine.lab.search.study.enqueue import enqueue, params_to_try
from zoerefine.lab.search.subject import TrialOutcome


@pytest.fixture
def page(here):
    """The page of a study's run: page(study) -> lines."""

    def show(study):
        study.subject.save(study.run)
        study.run.set_status("finished")
        return here("show", study.run.path).out.splitlines()

    return show


def after(lines, title):
    return lines[lines.index(title) + 1 :]


def test_a_study_has_its_trials_by_state_and_the_best_with_its_config(open_study, page, tmp_path):
    study = open_study(SPACE, "STUDY.TRIALS", 4)
    for value in (0.5, 0.25):
        end(study, abs_rel=value)
    prune(study, claim_trial(study, "a"), TrialOutcome({"abs_rel": 0.9}, "pruned"))
    fail(study, claim_trial(study, "a"), "out of memory")
    enqueue(study, params_to_try(study.subject, configs_of_rates(tmp_path, 0.003)))
    rate = study.trials()[1].params["TRAIN.LR"]
    lines = page(study)
    assert after(lines, "its study, minimize abs_rel:") == [
        "  trials    5: 2 completed, 1 pruned, 1 failed, 1 waiting",
        f"  best      trial 1, abs_rel 0.25; TRAIN.LR {rate:.4g}",
    ]
    assert "config      kept as config.yaml" in lines
    (study.run.path / "best.yaml").touch()
    assert page(study)[-1] == f"            {study.run.path / 'best.yaml'}"


def test_a_study_without_a_completed_trial_has_no_best(open_study, page):
    study = open_study(SPACE)
    assert after(page(study), "its study, minimize abs_rel:") == ["  trials    0"]


def test_a_study_with_several_objectives_has_its_front(open_study, page):
    study = open_study("{MODEL: {BASE: [4, 6, 8]}}", "STUDY.OBJECTIVES", "[abs_rel, parameters]")
    for abs_rel, parameters in ((0.5, 9.0), (0.4, 20.0), (0.6, 30.0)):
        end(study, abs_rel=abs_rel, parameters=parameters)
    first, second, _ = study.trials()
    (study.run.path / "pareto-0000.yaml").touch()
    assert after(page(study), "its study, minimize abs_rel, minimize parameters:") == [
        "  trials    3: 3 completed",
        f"  front     trial {second.number}, abs_rel 0.4, parameters 20; "
        f"MODEL.BASE {second.params['MODEL.BASE']}",
        f"  front     trial 0, abs_rel 0.5, parameters 9; MODEL.BASE {first.params['MODEL.BASE']}",
        f"            {study.run.path / 'pareto-0000.yaml'}",
    ]


def test_a_study_without_its_database_is_shown_with_the_reason(open_study, page):
    study = open_study(SPACE)
    (study.run.path / "study.db").unlink()
    assert "is not a study: there is no database" in page(study)[-1]


def test_a_run_is_no_study(study, here):
    assert "its study" not in here("show", study.path / "trials" / "0000").out
