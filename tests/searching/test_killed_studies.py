"""A study whose worker is killed at any write ends with the trials of one that was left alone."""

import random
import shutil
import zlib
from contextlib import suppress

import pytest

from tests.searching.test_claims import Killed, kill_at_write
from zoerefine.searching.check import PACKAGES
from zoerefine.searching.claims import claim_trial, complete, put_back
from zoerefine.searching.lost_trials import requeue_trials_of
from zoerefine.searching.trial_runner import TrialOutcome

CONTINUOUS = (
    "{TRAIN: {LR: {low: 0.001, high: 0.01, log: true}, WARMUP: {low: 0.0, high: 0.5}}, "
    "MODEL: [{NAME: small, BASE: [4, 6, 8]}, {NAME: guided, MAX_LOG: {low: 0.5, high: 2.0}}]}"
)
FEW = "{MODEL: {MAX_LOG: [0.5, 1.0, 1.5, 2.0], BASE: [4, 6]}}"  # duplicates are sampled


def run_trials(study):
    """Run trials until none is left; the figure follows from the values."""
    while claim := claim_trial(study, "worker"):
        abs_rel = zlib.crc32(repr(sorted(claim.values.items())).encode()) / 2**32
        complete(study, claim, TrialOutcome({"abs_rel": abs_rel}))


def trials(study):
    return [(one.number, one.params, one.value) for one in study.trials()]


@pytest.mark.parametrize(
    ("space", "sampler", "count", "kills"),
    [
        *((CONTINUOUS, "tpe", 12, 6), (FEW, "random", 8, 16)),
        *((CONTINUOUS, "cmaes", 12, 6), (FEW, "nsga2", 8, 8)),
    ],
)
def test_a_killed_study_ends_with_the_same_trials(
    open_study, monkeypatch, space, sampler, count, kills
):
    for package in PACKAGES.get(sampler, ()):
        pytest.importorskip(package, reason="of the extra `samplers`")
    words = ("STUDY.TRIALS", count, "STUDY.SAMPLER", sampler)
    expected = open_study(space, *words, folder="whole")
    run_trials(expected)
    assert len(trials(expected)) == count
    killed = open_study(space, *words, "STUDY.RETRIES", 1000, folder="killed")
    moments = random.Random(0)
    for kill in range(kills):
        with monkeypatch.context() as patch:
            kill_at_write(killed, moments.randrange(1, 40), patch)
            with suppress(Killed):
                run_trials(killed)
        requeue_trials_of(killed, "worker", with_its_driver=kill % 2 == 0)
    run_trials(killed)
    assert trials(killed) == trials(expected)


def test_each_write_of_a_claim_may_be_the_last_of_its_worker(open_study, monkeypatch):
    expected = open_study(CONTINUOUS, "STUDY.TRIALS", 1, folder="whole")
    run_trials(expected)
    for count in range(100):
        study = open_study(CONTINUOUS, "STUDY.TRIALS", 1, folder=f"killed{count}")
        with monkeypatch.context() as patch:
            kill_at_write(study, count, patch)
            try:
                run_trials(study)
                break
            except Killed:
                pass
        requeue_trials_of(study, "worker")
        run_trials(study)
        assert trials(study) == trials(expected)
    assert count > 8


def test_a_trial_of_gp_that_was_killed_while_it_got_its_values_gets_the_same(
    open_study, monkeypatch, tmp_path
):
    """After ten trials, when the sampler no longer draws at random."""
    pytest.importorskip("scipy", reason="of the extra `samplers`")
    words = ("STUDY.SAMPLER", "gp", "STUDY.TRIALS")
    run_trials(open_study(CONTINUOUS, *words, 10, folder="ten"))
    shutil.copytree(tmp_path / "ten", tmp_path / "whole")
    expected = open_study(CONTINUOUS, *words, 11, folder="whole")
    run_trials(expected)
    for count in range(1, 5):
        shutil.copytree(tmp_path / "ten", tmp_path / str(count))
        study = open_study(CONTINUOUS, *words, 11, folder=str(count))
        with monkeypatch.context() as patch:
            kill_at_write(study, count, patch)
            with pytest.raises(Killed):
                run_trials(study)
        requeue_trials_of(study, "worker")
        run_trials(study)
        assert trials(study) == trials(expected)


def test_the_end_of_a_driver_is_no_fault_of_its_workers_trial(open_study):
    study = open_study(CONTINUOUS, "STUDY.TRIALS", 1, "STUDY.RETRIES", 0)
    for _ in range(3):
        assert claim_trial(study, "worker").number == 0
        requeue_trials_of(study, "worker", with_its_driver=True)
    claim = claim_trial(study, "worker")
    assert claim.number == 0
    put_back(study, claim)
