"""Trials are claimed once, keep their number whatever happens to their workers, and end once."""

from contextlib import suppress

import pytest
import sqlalchemy

from tests.lab.search.conftest import SPACE
from zoerefine.base.errors import UserError
from zoerefine.lab.search.study import claims
from zoerefine.lab.search.study.trials import reason_of
from zoerefine.lab.search.subject import TrialOutcome

FIGURES = {"abs_rel": 0.1}


def states(study):
    return [trial.state.name for trial in study.trials()]


def make_heartbeats_old(study):
    """Let every worker count as dead."""
    with study.storage.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE trial_heartbeats SET heartbeat = '2000-01-01'"))


def test_exactly_as_many_trials_begin_as_are_planned(open_study):
    study = open_study(SPACE, "STUDY.TRIALS", 2)
    first, second = (claims.claim_trial(study, worker) for worker in "ab")
    assert (first.number, second.number) == (0, 1)
    assert first.values != second.values
    assert claims.claim_trial(study, "c") is None
    assert not study.is_idle()
    for claim in (first, second):
        claims.complete(study, claim, TrialOutcome(FIGURES))
    assert study.is_idle()
    assert claims.claim_trial(study, "a") is None


def test_a_trial_continues_under_its_number_when_its_worker_is_dead(open_study):
    study = open_study(SPACE, "STUDY.TRIALS", 2)
    lost, other = claims.claim_trial(study, "a"), claims.claim_trial(study, "b")
    lost.trial.report(0.5, 0)
    claims.requeue_trials_of(study, "a")
    assert states(study) == ["WAITING", "RUNNING"]
    again = claims.claim_trial(study, "c")
    assert (again.number, again.values, again.run) == (lost.number, lost.values, lost.run)
    assert study.trials()[0].intermediate_values == {0: 0.5}
    claims.complete(study, again, TrialOutcome(FIGURES))
    claims.complete(study, other, TrialOutcome(FIGURES))
    assert [trial.number for trial in study.optuna.trials] == [0, 1]


def test_a_trial_is_taken_over_when_its_heartbeat_is_late(open_study):
    study = open_study(SPACE, "STUDY.TRIALS", 1)
    late = claims.claim_trial(study, "a")
    assert claims.claim_trial(study, "b") is None
    make_heartbeats_old(study)
    again = claims.claim_trial(study, "b")
    assert again.number == late.number
    assert claims.is_held(study, again)
    assert not claims.is_held(study, late)


def test_a_trial_whose_worker_lives_does_not_fail_however_often_a_clock_jumps(open_study):
    study = open_study("{TRAIN: {LR: [0.001]}}", "STUDY.TRIALS", 1, "STUDY.RETRIES", 0)
    claim = claims.claim_trial(study, "a")
    claim.run.path.mkdir(parents=True)
    with claim.run.writing():
        for worker in "bcd":
            make_heartbeats_old(study)
            claim = claims.claim_trial(study, worker)
    make_heartbeats_old(study)
    assert claims.claim_trial(study, "e") is None  # now its worker is gone
    assert reason_of(study.trials()[0]) == "its worker or a process of it died 1 times"


@pytest.mark.parametrize("is_ended", [False, True])
@pytest.mark.parametrize(
    "end",
    [
        lambda study, claim: claims.complete(study, claim, TrialOutcome({"abs_rel": 9.0})),
        lambda study, claim: claims.prune(study, claim, TrialOutcome({"abs_rel": 9.0}, "late")),
        lambda study, claim: claims.fail(study, claim, "late"),
    ],
    ids=["complete", "prune", "fail"],
)
def test_a_worker_that_lost_its_trial_cannot_end_it(open_study, end, is_ended):
    study = open_study(SPACE, "STUDY.TRIALS", 1)
    late = claims.claim_trial(study, "a")
    make_heartbeats_old(study)
    again = claims.claim_trial(study, "b")
    if is_ended:
        claims.complete(study, again, TrialOutcome(FIGURES))
    with pytest.raises(claims.ClaimLost):
        end(study, late)
    claims.put_back(study, late)
    if not is_ended:
        assert claims.is_held(study, again)
        claims.complete(study, again, TrialOutcome(FIGURES))
    (trial,) = study.trials()
    assert trial.value == FIGURES["abs_rel"]
    assert reason_of(trial) == ""


def test_an_interrupted_trial_continues_and_counts_no_death(open_study):
    study = open_study(SPACE, "STUDY.TRIALS", 1, "STUDY.RETRIES", 0)
    for _ in range(3):
        claim = claims.claim_trial(study, "a")
        assert claim.number == 0
        claims.put_back(study, claim)
    assert states(study) == ["WAITING"]


def test_a_trial_fails_after_its_retries_and_the_others_go_on(open_study):
    study = open_study(SPACE, "STUDY.TRIALS", 2, "STUDY.RETRIES", 1)
    numbers = []
    while (claim := claims.claim_trial(study, "a")).number == 0:
        numbers.append(claim.number)
        claims.requeue_trials_of(study, "a")
    assert numbers == [0, 0]
    assert states(study) == ["FAIL", "RUNNING"]
    assert reason_of(study.trials()[0]) == "its worker or a process of it died 2 times"


class Killed(BaseException):
    """Stands for a kill -9 of the process."""


def kill_at_write(study, count, monkeypatch):
    """Make a study's database raise `Killed` before the write of this count."""
    writes = iter(range(count))

    def killing(write):
        def call(*args, **kwargs):
            if next(writes, None) is None:
                raise Killed
            return write(*args, **kwargs)

        return call

    for name in ("set_trial_user_attr", "set_trial_state_values", "_create_new_trial",
                 "_set_trial_param", "record_heartbeat"):  # fmt: skip
        monkeypatch.setattr(study.storage, name, killing(getattr(study.storage, name)))


def test_a_worker_killed_between_any_two_writes_loses_no_trial(open_study, monkeypatch):
    """Each round, worker a dies, and then b at its nth write as it takes the trial over."""
    study = open_study(SPACE, "STUDY.TRIALS", 1, "STUDY.RETRIES", 100)
    first = claim = claims.claim_trial(study, "a")
    for count in range(100):
        make_heartbeats_old(study)
        with monkeypatch.context() as patch, suppress(Killed):
            kill_at_write(study, count, patch)
            claim = claims.claim_trial(study, "b")
            break
        claim = claims.claim_trial(study, "c")
        assert (claim.number, claim.values) == (0, first.values)
        assert len(study.trials()[0].user_attrs["lost_claims"]) == count + 1
    assert count > 5
    claims.complete(study, claim, TrialOutcome(FIGURES))
    assert [trial.number for trial in study.optuna.trials] == [0]


def test_nothing_is_requeued_while_its_worker_is_alive(open_study):
    study = open_study(SPACE, "STUDY.TRIALS", 1)
    claim = claims.claim_trial(study, "a")
    with study.locked():
        claims.requeue_lost_trials(study)
    claims.requeue_trials_of(study, "another")
    assert claims.is_held(study, claim)


def test_a_study_whose_first_trials_all_fail_ends_with_the_reason(open_study):
    study = open_study(SPACE)
    for _ in range(5):
        claims.fail(study, claims.claim_trial(study, "a"), "out of memory")
    with pytest.raises(UserError, match="the first 5 trials all failed; the last one: out of mem"):
        claims.claim_trial(study, "a")
