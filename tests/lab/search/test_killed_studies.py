"""A study whose worker is killed at any write ends with the trials of one that was left alone."""

import itertools
import os
import random
import shutil
import zlib
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest
from optuna.storages import RDBStorage

from tests.lab.search.test_claims import Killed, kill_at_write
from zoerefine.depth.study.trials import OwnTraining
from zoerefine.lab.search import worker
from zoerefine.lab.search.space.checks import PACKAGES
from zoerefine.lab.search.study.claims import claim_trial, complete, put_back, requeue_trials_of
from zoerefine.lab.search.study.ending import count_begun
from zoerefine.lab.search.study.enqueue import enqueue, params_to_try
from zoerefine.lab.search.subject import TrialOutcome

CONTINUOUS = (
    "{TRAIN: {LR: {low: 0.001, high: 0.01, log: true}, WARMUP: {low: 0.0, high: 0.5}}, "
    "MODEL: [{NAME: small, BASE: [4, 6, 8]}, {NAME: guided, MAX_LOG: {low: 0.5, high: 2.0}}]}"
)
FEW = "{MODEL: {MAX_LOG: [0.5, 1.0, 1.5, 2.0], BASE: [4, 6]}}"  # duplicates are sampled


def run_trials(study):
    """Run trials until none is left; the figure follows from the values."""
    while claim := claim_trial(study, "worker"):
        complete(study, claim, TrialOutcome({"abs_rel": figure(claim.values)}))


def figure(values):
    return zlib.crc32(repr(sorted(values.items())).encode()) / 2**32


def trials(study):
    return [(one.number, one.params, one.value) for one in study.trials()]


def outcomes(study):
    """Every trial, those that wait in the queue too."""
    return [(one.number, one.state.name, one.params, one.value) for one in study.trials()]


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
        with monkeypatch.context() as patch, suppress(Killed):
            kill_at_write(killed, moments.randrange(1, 40), patch)
            run_trials(killed)
        requeue_trials_of(killed, "worker", with_its_driver=kill % 2 == 0)
    run_trials(killed)
    assert trials(killed) == trials(expected)


def test_each_write_of_a_claim_may_be_the_last_of_its_worker(open_study, monkeypatch):
    expected = open_study(CONTINUOUS, "STUDY.TRIALS", 1, folder="whole")
    run_trials(expected)
    for count in range(100):
        study = open_study(CONTINUOUS, "STUDY.TRIALS", 1, folder=f"killed{count}")
        with monkeypatch.context() as patch, suppress(Killed):
            kill_at_write(study, count, patch)
            run_trials(study)
            break
        requeue_trials_of(study, "worker")
        run_trials(study)
        assert trials(study) == trials(expected)
    assert count > 8


WRITES_BETWEEN_KILLS = 1 if int(os.environ.get("ZOEREFINE_TEST_KILLS") or 1) >= 50 else 5
FIVE = [(2.0, 4), (1.0, 6), (0.5, 4), (2.0, 6), (1.5, 4)]  # combinations of FEW


@pytest.fixture
def queue(tmp_path):
    """Configs for --enqueue: queue(3)."""

    def make(count):
        paths = [tmp_path / f"{number}.yaml" for number in range(count)]
        for path, (max_log, base) in zip(paths, FIVE, strict=False):
            path.write_text(f"MODEL: {{MAX_LOG: {max_log}, BASE: {base}}}\n")
        return paths

    return make


def run_study(study, queued):
    """As the command does: queue what is tried first, then run trials."""
    enqueue(study, params_to_try(study.subject, queued))
    run_trials(study)


@pytest.mark.parametrize(
    ("queued", "words", "ended"),
    [
        (5, ("STUDY.TRIALS", 2), 2),
        (2, ("STUDY.TRIALS", 4), 4),
        (5, ("STUDY.PATIENCE", 2), 4),
        (0, ("STUDY.SAMPLER", "grid", "STUDY.PATIENCE", 1), 3),
    ],
    ids=["fewer than queued", "more than queued", "patience in the queue", "patience in a grid"],
)
def test_a_study_killed_at_any_write_keeps_to_its_budget(
    open_study, monkeypatch, queue, queued, words, ended
):
    """Also while it queues: the next command begins with the first trial that has not ended."""
    expected = open_study(FEW, *words, folder="whole")
    run_study(expected, queue(queued))
    whole = outcomes(expected)
    assert sum(state == "COMPLETE" for _, state, *_ in whole) == ended
    for count in range(0, 1000, WRITES_BETWEEN_KILLS):
        study = open_study(FEW, *words, folder=f"killed{count}")
        with monkeypatch.context() as patch, suppress(Killed):
            kill_at_write(study, count, patch)
            run_study(study, queue(queued))
            break
        requeue_trials_of(study, "worker", with_its_driver=True)
        run_study(study, queue(queued))
        assert outcomes(study) == whole, count
    assert count > 8 * ended


def end_at_once(run, values, monitor):
    """Ends a trial with the figure of `run_trials`."""
    return TrialOutcome({"abs_rel": figure(values)})


def test_a_study_that_was_stopped_by_time_limits_and_kills_has_the_same_trials(
    open_study, monkeypatch, queue
):
    words = ("STUDY.TRIALS", 6, "STUDY.RETRIES", 1000)
    expected = open_study(FEW, *words, folder="whole")
    run_study(expected, queue(3))
    study = open_study(FEW, *words, folder="stopped")
    study.subject.save(study.run)
    enqueue(study, params_to_try(study.subject, queue(3)))
    monkeypatch.setattr(OwnTraining, "runner", lambda self, run: end_at_once)
    monkeypatch.setattr(worker, "heartbeat", lambda *_: nullcontext())
    moments = random.Random(0)
    for limit in (1, 1, 2, 1, 1, 2, 1, 9):  # the last one ends the study
        begun = count_begun(study.trials())
        looks = itertools.count()  # a worker looks at the time before each trial
        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(worker, "time", SimpleNamespace(time=looks.__next__))
            if limit < 9:
                kill_at_write(SimpleNamespace(storage=RDBStorage), moments.randrange(15), patch)
            worker.run_worker(study.run, "worker", until=limit)
        assert count_begun(study.trials()) <= min(begun + limit, 6)
    assert outcomes(study) == outcomes(expected)


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
