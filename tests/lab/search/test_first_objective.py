"""Pruning where a study has several objectives: by the first one, or where all are worse."""

import random

import optuna
import pytest

from tests.lab.search.conftest import SPACE
from zoerefine.base.registries import PRUNERS
from zoerefine.lab.search.study.claims import claim_trial, complete, prune
from zoerefine.lab.search.study.trials import longest_trial, trial_run, values_at_steps
from zoerefine.lab.search.subject import TrialOutcome

STEPS, TRIALS = 5, 12
SEVERAL = "[abs_rel, parameters]"


def above_half(steps):
    """A pruner that stops a trial above 0.5."""
    return optuna.pruners.ThresholdPruner(upper=0.5)


@pytest.fixture
def stops_above_half(monkeypatch):
    """The words that choose this pruner."""
    monkeypatch.setitem(PRUNERS, "above_half", f"{__name__}:above_half")
    return ("STUDY.PRUNER", "above_half")


def at_once(steps):
    """A pruner that stops every trial."""
    return optuna.pruners.ThresholdPruner(upper=-1.0)


def run_trials(study, count=TRIALS):
    """End trials whose curves fall at random rates; returns the step after which each ended."""
    numbers, ended = random.Random(5), []
    first = study.criteria.objectives[0]
    for _ in range(count):
        claim, start, rate = claim_trial(study, "a"), numbers.random(), numbers.random()
        for step in range(STEPS):
            value = start * rate**step
            if study.is_pruned(claim.trial, step, {first: value}):
                prune(study, claim, TrialOutcome({}, f"pruned after step {step}"))
                break
        else:
            figures = {first: value, "parameters": 1 / (1 + start)}
            complete(study, claim, TrialOutcome(figures))
        ended.append(step)
    return ended


@pytest.mark.parametrize(
    ("pruner", "one", "several"),
    [("median", "[abs_rel]", SEVERAL), ("halving", "[delta1]", "[delta1, parameters]")],
)
def test_several_objectives_are_pruned_as_the_first_one_alone(open_study, pruner, one, several):
    words = ("TRAIN.EPOCHS", STEPS, "STUDY.TRIALS", TRIALS, "STUDY.SAMPLER", "random")
    words += ("STUDY.PRUNER", pruner)
    alone = run_trials(open_study(SPACE, *words, "STUDY.OBJECTIVES", one, folder="one"))
    ours = run_trials(open_study(SPACE, *words, "STUDY.OBJECTIVES", several, folder="several"))
    assert ours == alone
    assert min(ours) < STEPS - 1


def test_by_default_a_worse_first_objective_alone_prunes_no_trial(open_study):
    words = ("TRAIN.EPOCHS", STEPS, "STUDY.TRIALS", TRIALS)
    several = open_study(SPACE, *words, "STUDY.OBJECTIVES", SEVERAL, folder="several")
    assert set(run_trials(several)) == {STEPS - 1}
    assert min(run_trials(open_study(SPACE, *words, folder="one"))) < STEPS - 1


@pytest.mark.parametrize(
    ("objectives", "sign"),
    [("[abs_rel, parameters]", 1), ("[delta1, abs_rel]", -1), ("[abs_rel, delta1, parameters]", 1)],
)
def test_by_default_dominated_trials_are_pruned_and_the_front_is_the_same(
    open_study, objectives, sign
):
    """Curves that never cross: a trial that is dominated at a step is so at the end."""
    words = ("TRAIN.EPOCHS", STEPS, "STUDY.TRIALS", 40, "STUDY.OBJECTIVES", objectives)
    words += ("STUDY.SAMPLER", "random")

    def run(pruner):
        study = open_study(SPACE, *words, "STUDY.PRUNER", pruner, folder=pruner)
        names, numbers = study.criteria.objectives, random.Random(3)
        while claim := claim_trial(study, "a"):
            ends = {name: numbers.random() for name in names}
            for step in range(STEPS):
                figures = ends | {names[0]: ends[names[0]] + sign * (STEPS - step)}
                if study.is_pruned(claim.trial, step, figures):
                    prune(study, claim, TrialOutcome({}, f"pruned after step {step}"))
                    break
            else:
                complete(study, claim, TrialOutcome(figures))
        return study

    every, some = run("none"), run("auto")
    pruned = [one.number for one in some.trials() if one.state.name == "PRUNED"]
    assert pruned
    assert [one.number for one in some.best()] == [one.number for one in every.best()]
    ends = {one.number: one.values for one in every.trials()}
    signs = [-1 if one == "maximize" else 1 for one in every.criteria.directions.values()]
    for number in pruned:
        better = [
            other
            for other in set(ends) - set(pruned)
            if all(s * a <= s * b for s, a, b in zip(signs, ends[other], ends[number], strict=True))
        ]
        assert len(better) >= 3


def test_an_objective_that_is_known_only_at_the_end_dominates_nothing(open_study):
    words = ("TRAIN.EPOCHS", STEPS, "STUDY.TRIALS", TRIALS)
    study = open_study(SPACE, *words, "STUDY.OBJECTIVES", "[abs_rel, latency_ms]")
    for number in range(TRIALS):
        claim = claim_trial(study, "a")
        for step in range(STEPS):
            assert not study.is_pruned(claim.trial, step, {"abs_rel": float(number)})
        complete(study, claim, TrialOutcome({"abs_rel": float(number), "latency_ms": 1.0}))


def test_another_objective_than_the_first_does_not_prune(open_study, stops_above_half):
    def is_pruned(objectives):
        words = ("STUDY.OBJECTIVES", objectives, *stops_above_half)
        study = open_study(SPACE, *words, folder=objectives)
        return study.is_pruned(claim_trial(study, "a").trial, 0, {"abs_rel": 0.9})

    assert not is_pruned("[latency_ms]")
    assert not is_pruned("[parameters, abs_rel]")
    assert is_pruned("[abs_rel, parameters]")
    assert is_pruned("[abs_rel]")


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "gp"])
def test_samplers_go_on_after_pruned_trials_of_several_objectives(open_study, sampler):
    if sampler == "gp":
        pytest.importorskip("scipy", reason="of the extra `samplers`")
    words = ("TRAIN.EPOCHS", STEPS, "STUDY.TRIALS", 16, "STUDY.SAMPLER", sampler)
    words += ("STUDY.PRUNER", "halving", "STUDY.OBJECTIVES", SEVERAL)
    study = open_study(SPACE, *words)
    run_trials(study, 16)
    states = [trial.state.name for trial in study.trials()]
    assert len(states) == 16
    assert set(states) == {"COMPLETE", "PRUNED"}
    assert all(trial.state.name == "COMPLETE" for trial in study.best())


def test_a_step_that_was_reported_before_a_kill_keeps_its_value(open_study, stops_above_half):
    study = open_study(SPACE, "STUDY.OBJECTIVES", SEVERAL, *stops_above_half)
    claim = claim_trial(study, "a")
    assert not study.is_pruned(claim.trial, 0, {"abs_rel": 0.4})
    assert not study.is_pruned(claim.trial, 0, {"abs_rel": 0.9})
    assert study.is_pruned(claim.trial, 1, {"abs_rel": 0.8})
    assert values_at_steps(study.trials()[0]) == {0: 0.4, 1: 0.8}


def test_the_longest_trial_is_known_with_several_objectives(open_study):
    study = open_study(SPACE, "STUDY.OBJECTIVES", SEVERAL)
    run_trials(study, 1)
    assert longest_trial(study.trials()) == STEPS - 1


def test_a_training_is_pruned_by_its_first_objective(searched, monkeypatch):
    monkeypatch.setitem(PRUNERS, "at_once", f"{__name__}:at_once")
    words = ("TRAIN.EPOCHS", 2, "STUDY.OBJECTIVES", "[delta1, parameters]", "STUDY.TRIALS", 1)
    study = searched("{TRAIN: {LR: [0.001]}}", "STUDY.PRUNER", "at_once", *words)
    (trial,) = study.trials()
    (value,) = values_at_steps(trial).values()
    (logged,) = [row for row in trial_run(study.run, 0).metrics() if row["phase"] == "val"]
    assert trial.state.name == "PRUNED"
    assert trial.user_attrs["reason"] == "pruned after epoch 1"
    assert value == logged["refined"]["delta1"]
