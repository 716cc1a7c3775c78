"""STUDY.PATIENCE: a study ends once its trials do not improve it any more."""

import pytest

from tests.lab.search.conftest import SPACE, configs_of_rates, end
from zoerefine.lab.search.study.claims import claim_trial, complete, fail, prune, requeue_trials_of
from zoerefine.lab.search.study.enqueue import enqueue, params_to_try
from zoerefine.lab.search.subject import TrialOutcome

PRUNED, FAILED = "pruned", "failed"


def end_trials(study, outcomes):
    """End trials in turn with these outcomes; returns how many there were."""
    for count, outcome in enumerate(outcomes):
        claim = claim_trial(study, "worker")
        if claim is None:
            return count
        if outcome is PRUNED:
            prune(study, claim, TrialOutcome({}, "it was worse than the others"))
        elif outcome is FAILED:
            fail(study, claim, "out of memory")
        else:
            names = ("abs_rel", "parameters")
            figures = outcome if isinstance(outcome, tuple) else (outcome,)
            complete(study, claim, TrialOutcome(dict(zip(names, figures, strict=False))))
    return len(outcomes)


@pytest.mark.parametrize(
    ("outcomes", "ended"),
    [
        ([0.5] * 9, 4),  # the first, and three that are not better
        ([0.5, 0.4, 0.4, 0.4, 0.4, 0.1], 5),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1], 9),
        ([0.5, PRUNED, FAILED, PRUNED, 0.1], 4),
        ([0.5, PRUNED, PRUNED, 0.4, PRUNED, PRUNED, 0.3, 0.3], 8),
        ([PRUNED, PRUNED, PRUNED, 0.1], 3),
    ],
)
def test_a_study_ends_after_so_many_trials_without_a_better_one(open_study, outcomes, ended):
    study = open_study(SPACE, "STUDY.PATIENCE", 3, "STUDY.SAMPLER", "random")
    assert end_trials(study, outcomes) == ended
    assert study.is_idle()


def test_more_patience_continues_a_study(open_study):
    assert end_trials(open_study(SPACE, "STUDY.PATIENCE", 2), [0.5] * 9) == 3
    assert end_trials(open_study(SPACE, "STUDY.PATIENCE", 2), [0.1]) == 0
    assert end_trials(open_study(SPACE, "STUDY.PATIENCE", 4), [0.5] * 9) == 2


def test_a_trial_outside_the_limits_is_not_better(open_study):
    limits = "[{name: parameters, at_most: 100}]"
    study = open_study(SPACE, "STUDY.PATIENCE", 3, "STUDY.CONSTRAINTS", limits)
    assert end_trials(study, [(0.5, 50), (0.4, 200), (0.3, 200), (0.2, 200), (0.1, 50)]) == 4


def test_with_several_objectives_a_new_point_of_the_front_is_better(open_study):
    study = open_study(SPACE, "STUDY.PATIENCE", 2, "STUDY.OBJECTIVES", "[abs_rel, parameters]")
    outcomes = [(0.5, 50), (0.6, 60), (0.6, 40), (0.4, 60), (0.6, 40), (0.5, 50), (0.1, 1)]
    assert end_trials(study, outcomes) == 6


def test_an_objective_to_maximize_is_better_above(open_study):
    study = open_study(SPACE, "STUDY.PATIENCE", 2, "STUDY.OBJECTIVES", "[delta1]")
    for value in (0.1, 0.2, 0.3, 0.2, 0.1):
        end(study, delta1=value)
    assert claim_trial(study, "worker") is None


def test_a_grid_ends_without_a_better_trial_too(open_study):
    outcomes = [10.0, 5.0, 4.0, 3.0, 6.0, 7.0, 8.0, 9.0, 9.5, 2.9, 8.8]
    words = ("STUDY.SAMPLER", "grid", "STUDY.PATIENCE")
    study = open_study(f"{{TRAIN: {{CLIP: {outcomes}}}}}", *words, 3)
    enqueue(study, [])
    assert end_trials(study, outcomes) == 7
    more = open_study(f"{{TRAIN: {{CLIP: {outcomes}}}}}", *words, 6)
    enqueue(more, [])
    assert end_trials(more, outcomes[7:]) == 4  # it begins with the next combination


def test_configs_that_were_enqueued_end_without_a_better_trial_too(open_study, tmp_path):
    study = open_study(SPACE, "STUDY.PATIENCE", 2)
    configs = configs_of_rates(tmp_path, 0.002, 0.003, 0.004, 0.005, 0.006)
    enqueue(study, params_to_try(study.subject, configs))
    assert end_trials(study, [0.5] * 9) == 3
    assert study.is_idle()


def test_a_trial_that_lost_its_worker_is_finished_when_patience_has_run_out(open_study):
    study = open_study(SPACE, "STUDY.PATIENCE", 2)
    lost = claim_trial(study, "lost")
    assert end_trials(study, [0.5] * 9) == 3
    requeue_trials_of(study, "lost")
    assert not study.is_idle()
    again = claim_trial(study, "worker")
    assert again.number == lost.number
    complete(study, again, TrialOutcome({"abs_rel": 0.6}))
    assert claim_trial(study, "worker") is None
    assert study.is_idle()
