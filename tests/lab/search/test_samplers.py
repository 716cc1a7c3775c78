"""Samplers of ranges and of several objectives: what they try, what they need and store."""

import math
import pickle
from importlib.util import find_spec

import pytest

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.registries import OBJECTIVES, PRUNERS, SAMPLERS
from zoerefine.lab.search.space import checks
from zoerefine.lab.search.space.checks import check_search_space
from zoerefine.lab.search.space.space import suggest
from zoerefine.lab.search.study import samplers
from zoerefine.lab.search.study.claims import claim_trial, complete
from zoerefine.lab.search.study.next_trial import TrialSampler
from zoerefine.lab.search.subject import TrialOutcome

pytestmark = pytest.mark.skipif(
    not (find_spec("scipy") and find_spec("cmaes")), reason="of the extra `samplers`"
)
RANGES = (
    "{TRAIN: {LR: {low: 0.0001, high: 0.1, log: true}, WARMUP: {low: 0.0, high: 0.5}}, "
    "MODEL: {BASE: {low: 4, high: 64, step: 4}, MAX_LOG: [0.5, 1.0]}}"
)


def distance(values):
    """How far values are from 0.003, 0.1 and 24, each relative to its range."""
    return (
        (math.log10(values["TRAIN.LR"] / 0.003) / 3) ** 2
        + ((values["TRAIN.WARMUP"] - 0.1) / 0.5) ** 2
        + ((values["MODEL.BASE"] - 24) / 60) ** 2
    )


def run_trials(study, figures):
    """End every trial with its figures; returns the values of all in turn."""
    tried = []
    while claim := claim_trial(study, "worker"):
        tried.append(claim.values)
        complete(study, claim, TrialOutcome(figures(claim.values)))
    return tried


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


@pytest.mark.parametrize(("sampler", "count"), [("gp", 18), ("cmaes", 42), ("nsga2", 80)])
def test_a_sampler_learns_from_earlier_trials_and_stays_in_the_space(open_study, sampler, count):
    study = open_study(RANGES, "STUDY.SAMPLER", sampler, "STUDY.TRIALS", count)
    tried = run_trials(study, lambda values: {"abs_rel": distance(values)})
    assert len(tried) == count
    for values in tried:
        assert 0.0001 <= values["TRAIN.LR"] <= 0.1
        assert 0.0 <= values["TRAIN.WARMUP"] <= 0.5
        assert values["MODEL.BASE"] in range(4, 65, 4)
        assert values["MODEL.MAX_LOG"] in (0.5, 1.0)
    half = count // 2
    assert mean(map(distance, tried[half:])) < 0.7 * mean(map(distance, tried[:half]))


def test_cmaes_maximizes_where_the_objective_is_maximized(open_study):
    words = ("STUDY.SAMPLER", "cmaes", "STUDY.TRIALS", 42, "STUDY.OBJECTIVES", "[delta1]")
    tried = run_trials(open_study(RANGES, *words), lambda values: {"delta1": 1 - distance(values)})
    assert mean(map(distance, tried[21:])) < 0.7 * mean(map(distance, tried[:21]))


@pytest.mark.parametrize("sampler", ["gp", "nsga2"])
def test_several_objectives_have_a_front(open_study, sampler):
    words = ("STUDY.OBJECTIVES", "[abs_rel, parameters]", "STUDY.SAMPLER", sampler)
    study = open_study(RANGES, *words, "STUDY.TRIALS", 13)
    run_trials(
        study, lambda values: {"abs_rel": distance(values), "parameters": values["MODEL.BASE"]}
    )
    front = study.best()
    assert len(front) > 1
    assert len({tuple(trial.values) for trial in front}) == len(front)


def test_cmaes_loads_no_pickle_of_a_database(open_study, tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    study = open_study(RANGES, "STUDY.SAMPLER", "cmaes", "STUDY.TRIALS", 12)
    for number in range(10):
        claim = claim_trial(study, "worker")
        for key, value in (("optimizer:0", pickle.dumps(Evil()).hex()), ("generation", 0)):
            study.storage.set_trial_system_attr(claim.trial._trial_id, f"cma:{key}", value)
        complete(study, claim, TrialOutcome({"abs_rel": float(number)}))
    run_trials(study, lambda values: {"abs_rel": distance(values)})
    assert not (tmp_path / "owned").exists()
    assert not any("cma" in key for one in study.trials()[10:] for key in one.system_attrs)


ONLY_RANGES = "{TRAIN: {LR: {low: 0.1, high: 0.9}, WARMUP: {low: 0.0, high: 0.5}}}"
ONE_RANGE = "{TRAIN: {LR: {low: 0.1, high: 0.9}, WARMUP: {low: 0.1, high: 0.1}}}"


@pytest.mark.parametrize(
    ("space", "objectives", "few", "many"),
    [
        (RANGES, "[abs_rel]", "tpe", "tpe"),
        (ONLY_RANGES, "[abs_rel]", "gp", "cmaes"),
        (ONE_RANGE, "[abs_rel]", "gp", "tpe"),
        (RANGES, "[abs_rel, parameters]", "tpe", "nsga2"),
        (ONLY_RANGES, "[abs_rel, parameters]", "gp", "nsga2"),
    ],
)
def test_auto_samples_as_the_sampler_of_its_rule(
    open_study, monkeypatch, space, objectives, few, many
):
    """After twelve trials, more than any sampler's random ones, both give the same values."""

    def thirteenth_values(sampler):
        words = ("STUDY.OBJECTIVES", objectives, "STUDY.TRIALS", 13, "STUDY.SAMPLER", "random")
        study = open_study(space, *words, folder=f"{sampler}-{samplers.MANY}")
        for number in range(12):
            figures = {"abs_rel": 0.1 + number % 5, "parameters": number}
            complete(study, claim_trial(study, "worker"), TrialOutcome(figures))
        study.optuna.sampler = TrialSampler(SAMPLERS.load(sampler), 0, 12)
        return suggest(study.space, study.optuna.ask())

    assert thirteenth_values("auto") == thirteenth_values(few)
    monkeypatch.setattr(samplers, "MANY", 12)
    assert thirteenth_values("auto") == thirteenth_values(many)


@pytest.mark.parametrize(
    ("sampler", "package"), [("gp", "scipy"), ("cmaes", "cmaes"), ("auto", "scipy")]
)
def test_a_missing_package_is_one_line(tiny, monkeypatch, sampler, package):
    cfg = load_config(tiny, ["SEARCH", ONLY_RANGES, "STUDY.SAMPLER", sampler])
    check_search_space(cfg)
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    with pytest.raises(UserError) as raised:
        check_search_space(cfg)
    assert str(raised.value) == (
        f"STUDY.SAMPLER {sampler} needs {package}: pip install 'zoerefine[samplers]'"
    )


@pytest.mark.parametrize(
    ("space", "words", "message"),
    [
        ("{TRAIN: {LR: {low: 0.1, high: 0.2}, CLIP: [1.0, 2.0]}}", (), "and SEARCH has 1"),
        ("{TRAIN: {LR: [0.1, 0.2]}}", (), "and SEARCH has 0"),
        (RANGES, ("STUDY.OBJECTIVES", "[abs_rel, parameters]"), "STUDY.OBJECTIVES has 2"),
    ],
)
def test_cmaes_refuses_what_it_cannot_search(open_study, space, words, message):
    with pytest.raises(UserError, match=f"STUDY.SAMPLER cmaes .* {message}"):
        open_study(space, "STUDY.SAMPLER", "cmaes", *words)


def test_every_name_of_a_sampler_a_pruner_and_an_objective_loads_its_part():
    samplers = [type(SAMPLERS.load(name)(seed=0)).__name__ for name in SAMPLERS]
    assert samplers == ["TPESampler", "RandomSampler", "RandomSampler", "ResumableGP", "CmaEs",
                        "NSGAIISampler", "Auto"]  # fmt: skip
    pruners = [type(PRUNERS.load(name)(steps=8)).__name__ for name in PRUNERS]
    assert pruners == ["Dominated", "MedianPruner", "Halving", "NopPruner"]
    maximized = [name for name in OBJECTIVES if OBJECTIVES.load(name).direction == "maximize"]
    assert maximized == ["delta1"]
