"""Samplers, pruners and objectives by name: each name gives its own part, and only that."""

import optuna
import pytest

from zoerefine.base.errors import UserError
from zoerefine.base.registries import OBJECTIVES, PRUNERS, SAMPLERS
from zoerefine.lab.search.study.claims import claim_trial, complete
from zoerefine.lab.search.subject import TrialOutcome


def highest(seed):
    """A sampler that always takes the upper bound."""
    return optuna.samplers.PartialFixedSampler({"TRAIN.LR": 0.5}, optuna.samplers.RandomSampler())


def test_a_sampler_is_one_function_and_one_row(open_study, monkeypatch):
    monkeypatch.setitem(SAMPLERS._places, "highest", f"{__name__}:highest")
    study = open_study("{TRAIN: {LR: {low: 0.1, high: 0.5}}}", "STUDY.SAMPLER", "highest")
    assert claim_trial(study, "a").values == {"TRAIN.LR": 0.5}


@pytest.mark.parametrize("key", ["SAMPLER", "PRUNER"])
def test_an_unknown_name_is_refused_with_the_known_ones(open_study, key):
    known = ", ".join(SAMPLERS if key == "SAMPLER" else PRUNERS)
    with pytest.raises(UserError, match=rf"STUDY\.{key} must be one of {known}; got 'best'"):
        open_study("{TRAIN: {LR: [0.1]}}", f"STUDY.{key}", "best")


def test_every_name_loads_its_part():
    pytest.importorskip("cmaes", reason="of the extra `samplers`")
    samplers = [type(SAMPLERS.load(name)(seed=0)).__name__ for name in SAMPLERS]
    assert samplers == [
        *("TPESampler", "RandomSampler", "RandomSampler"),
        *("ResumableGP", "CmaEs", "NSGAIISampler", "Auto"),
    ]
    pruners = [type(PRUNERS.load(name)(steps=8)).__name__ for name in PRUNERS]
    assert pruners == [*("Dominated", "MedianPruner", "SuccessiveHalvingPruner", "NopPruner")]
    directions = {name: OBJECTIVES.load(name).direction for name in OBJECTIVES}
    assert directions == {
        "abs_rel": "minimize",
        "delta1": "maximize",
        "latency_ms": "minimize",
        "parameters": "minimize",
    }


def test_the_best_trial_of_an_objective_to_maximize_has_its_largest_value(open_study):
    study = open_study("{TRAIN: {LR: [0.1, 0.2, 0.3]}}", "STUDY.OBJECTIVES", "[delta1]")
    for value in (0.5, 0.9, 0.7):
        complete(study, claim_trial(study, "a"), TrialOutcome({"delta1": value}))
    (best,) = study.best()
    assert best.value == 0.9
