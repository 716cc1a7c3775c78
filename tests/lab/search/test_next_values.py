"""Which values are tried: given ones first, no combination twice, the same for the same seed."""

import optuna
import pytest

from tests.lab.search.conftest import configs_of_rates
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.registries import SAMPLERS
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.search.study.claims import claim_trial, complete
from zoerefine.lab.search.study.enqueue import enqueue, params_to_try
from zoerefine.lab.search.study.trials import without_duplicates
from zoerefine.lab.search.subject import TrialOutcome


def run_trials(study, *enqueued):
    """End every trial with a figure; returns their parameters in turn."""
    enqueue(study, params_to_try(study.subject, enqueued))
    while claim := claim_trial(study, "worker"):
        complete(study, claim, TrialOutcome({"abs_rel": 0.1 + claim.number}))
    return [trial.params for trial in study.trials()]


def test_no_combination_is_tried_twice(open_study):
    study = open_study("{MODEL: {MAX_LOG: [0.5, 1.0, 2.0]}}", "STUDY.TRIALS", 8)
    assert sorted(one["MODEL.MAX_LOG"] for one in run_trials(study)) == [0.5, 1.0, 2.0]
    everything = study.optuna.trials
    for trial in everything:
        if trial not in without_duplicates(everything):
            earlier = everything[trial.user_attrs["duplicate_of"]]
            assert earlier.params == trial.params
            assert trial.user_attrs["reason"] == f"same values as trial {earlier.number}: not run"


def corner(seed):
    """A sampler that always takes the upper bound, as a model may that has found its optimum."""
    return optuna.samplers.PartialFixedSampler({"TRAIN.LR": 0.5}, optuna.samplers.RandomSampler())


def test_a_sampler_that_repeats_itself_does_not_end_a_study(open_study, monkeypatch):
    monkeypatch.setitem(SAMPLERS, "corner", f"{__name__}:corner")
    words = ("STUDY.SAMPLER", "corner", "STUDY.TRIALS", 4)
    tried = run_trials(open_study("{TRAIN: {LR: {low: 0.1, high: 0.5}}}", *words))
    assert tried[0]["TRAIN.LR"] == 0.5
    assert len({one["TRAIN.LR"] for one in tried}) == 4


def test_a_whole_logarithmic_range_ends_when_every_integer_was_tried(open_study):
    study = open_study("{MODEL: {BASE: {low: 4, high: 6, log: true}}}", "STUDY.TRIALS", 8)
    assert sorted(one["MODEL.BASE"] for one in run_trials(study)) == [4, 5, 6]


def test_a_grid_tries_every_combination_whatever_the_number_of_trials(open_study):
    space = "{TRAIN: {LR: [0.001, 0.002]}, MODEL: {BASE: {low: 4, high: 8, step: 2}}}"
    tried = run_trials(open_study(space, "STUDY.SAMPLER", "grid", "STUDY.TRIALS", 1))
    assert len(tried) == len({str(one) for one in tried}) == 6


def test_a_config_on_the_grid_is_not_tried_again_as_its_neighbor_by_rounding(
    open_study, tiny, tmp_path
):
    """The third of these steps is 0.1 + 2 * 0.1, which is not 0.3."""
    first = tmp_path / "first.yaml"
    first.write_text(tiny.read_text() + "\nLOSS: {OBJECT_WEIGHT: 0.3}\n")
    space = "{LOSS: {OBJECT_WEIGHT: {low: 0.1, high: 0.4, step: 0.1}}}"
    tried = run_trials(open_study(space, "STUDY.SAMPLER", "grid"), first)
    weights = [one["LOSS.OBJECT_WEIGHT"] for one in tried]
    assert weights[0] == 0.3
    assert sorted(weights) == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_configs_and_the_best_trials_of_other_studies_are_tried_first(open_study, study, tmp_path):
    config = tmp_path / "known.yaml"
    config.write_text("TRAIN: {LR: 0.0033}\nMODEL: {MAX_LOG: 1.0}\n")
    space = "{TRAIN: {LR: {low: 0.0001, high: 0.01}}, MODEL: {MAX_LOG: [0.5, 1.0]}}"
    tried = run_trials(open_study(space, "STUDY.TRIALS", 5), config, study.path)
    rates = [one["TRAIN.LR"] for one in tried]
    assert rates[0] == 0.0033
    assert rates[1:4] == rates_of(study)
    assert len(set(rates)) == 5


def test_what_is_queued_keeps_to_the_number_of_trials(open_study, tmp_path):
    configs = configs_of_rates(tmp_path, 0.3, 0.1, 0.2)
    space = "{TRAIN: {LR: {low: 0.0, high: 0.5}}}"
    tried = run_trials(open_study(space, "STUDY.TRIALS", 2), *configs)
    assert [one.get("TRAIN.LR") for one in tried] == [0.3, 0.1, None]
    tried = run_trials(open_study(space, "STUDY.TRIALS", 3))
    assert [one["TRAIN.LR"] for one in tried] == [0.3, 0.1, 0.2]
    *queued, drawn = run_trials(open_study(space, "STUDY.TRIALS", 4), *configs)
    assert len(queued) == 3
    assert drawn["TRAIN.LR"] not in (0.3, 0.1, 0.2)


def rates_of(run):
    """Learning rates of a study's trials, the best first."""

    def abs_rel(trial):
        return trial.read_json(trial.results_file)["val"]["refined"]["abs_rel"]

    trials = sorted(map(RunDir, sorted((run.path / "trials").iterdir())), key=abs_rel)
    return [load_config(trial.config_file).TRAIN.LR for trial in trials]


@pytest.mark.parametrize(
    ("space", "between"),
    [
        ("{TRAIN: {CLIP: {low: 0.5, high: 8, step: 1.5}}}", "TRAIN: {CLIP: 2.5}"),
        ("{MODEL: {BASE: {low: 4, high: 16, step: 2}}}", "MODEL: {BASE: 5}"),
        ("{MODEL: {OPTIONS: {depth: {low: 0, high: 10}}}}", "MODEL: {OPTIONS: {depth: 2.5}}"),
    ],
)
def test_a_config_between_the_steps_of_a_range_cannot_be_enqueued(
    open_study, tmp_path, space, between
):
    config = tmp_path / "between.yaml"
    config.write_text(f"{between}\n")
    with pytest.raises(UserError, match=r"between\.yaml: its values lie outside"):
        params_to_try(open_study(space).subject, [config])


def test_the_last_step_of_a_grid_is_not_beyond_its_end(open_study, recwarn):
    """0.1 + 2 * 0.1 is more than 0.3, and Optuna warns of a value beyond the end."""
    space = "{LOSS: {OBJECT_WEIGHT: {low: 0.1, high: 0.3, step: 0.1}}}"
    tried = run_trials(open_study(space, "STUDY.SAMPLER", "grid"))
    assert sorted(one["LOSS.OBJECT_WEIGHT"] for one in tried) == [0.1, 0.2, 0.3]
    assert not [one for one in recwarn if one.category is UserWarning]


def test_a_config_that_is_named_twice_is_queued_once(open_study, tmp_path):
    study = open_study("{TRAIN: {LR: {low: 0.0001, high: 0.01}}}")
    enqueue(study, params_to_try(study.subject, configs_of_rates(tmp_path, 0.003) * 2))
    assert len(study.optuna.trials) == 1


def test_the_values_follow_from_the_seed(open_study):
    space = "{TRAIN: {LR: {low: 0.0001, high: 0.01}}}"
    first, again = (claim_trial(open_study(space, folder=name), "a") for name in ("one", "two"))
    assert first.values == again.values
    other = open_study(space, "SEED", 1, folder="other")
    values = claim_trial(other, "a").values
    assert values != first.values
    assert claim_trial(other, "b").values != values
