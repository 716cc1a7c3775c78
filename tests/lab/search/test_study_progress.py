"""What people read while a study runs: numbers of folders, never more than planned, and values."""

import io
import re

import pytest
from rich.console import Console

from tests.lab.search.conftest import SPACE, configs_of_rates, end
from zoerefine.base.errors import UserError
from zoerefine.lab.search.progress import live_table, log, log_changes, make_table, study_progress
from zoerefine.lab.search.study.claims import claim_trial, complete, fail, prune, requeue_trials_of
from zoerefine.lab.search.study.ending import early_end
from zoerefine.lab.search.study.enqueue import enqueue, params_to_try
from zoerefine.lab.search.subject import TrialOutcome


@pytest.fixture
def lines(capsys):
    """Lines that were printed since the last call, without the time in front."""
    return lambda: capsys.readouterr().err.splitlines()


def test_a_trial_that_another_worker_continues_has_one_number(open_study, lines):
    study = open_study(SPACE, "STUDY.TRIALS", 2)
    logged = {}
    first, second = (claim_trial(study, worker) for worker in "ab")
    log_changes(study, logged)
    requeue_trials_of(study, "a")
    again = claim_trial(study, "b")
    log_changes(study, logged)
    complete(study, again, TrialOutcome({"abs_rel": 0.25}))
    complete(study, second, TrialOutcome({"abs_rel": 0.5}))
    log_changes(study, logged)
    rate = {one.number: f"TRAIN.LR {one.values['TRAIN.LR']:.4g}" for one in (first, second)}
    assert lines() == [
        f"trial 0 started (1 of 2): {rate[0]}",
        f"trial 1 started (2 of 2): {rate[1]}",
        f"trial 0 continued by another worker: {rate[0]}",
        "trial 0 completed: abs_rel 0.25 (best abs_rel 0.25, trial 0)",
        "trial 1 completed: abs_rel 0.5 (best abs_rel 0.25, trial 0)",
    ]
    assert again.run.path.name == "0000"


def test_nothing_is_printed_of_a_trial_that_has_no_values_yet(open_study, lines):
    study = open_study(SPACE)
    study.optuna.ask()  # as a worker does first
    log_changes(study, {})
    assert lines() == []
    assert make_table(study, until=0).row_count == 0


def test_no_trial_is_started_beyond_the_number_that_is_planned(open_study, tmp_path, lines):
    """More configs are enqueued than STUDY.TRIALS, and duplicates take numbers of their own."""
    configs = configs_of_rates(tmp_path, 0.1, 0.2, 0.3)
    study = open_study("{TRAIN: {LR: [0.1, 0.2, 0.3, 0.4]}}", "STUDY.TRIALS", 2)
    enqueue(study, params_to_try(study.subject, configs))
    logged = {}
    while claim := claim_trial(study, "a"):
        log_changes(study, logged)
        complete(study, claim, TrialOutcome({"abs_rel": 0.5}))
    counts = re.findall(r"started \((\d+) of (\d+)\)", "\n".join(lines()))
    assert counts == [("1", "2"), ("2", "2")]


def test_every_outcome_is_one_line_between_two_summaries(open_study, lines):
    words = ("STUDY.TRIALS", 4, "STUDY.CONSTRAINTS", "[{name: parameters, at_most: 9}]")
    study = open_study(SPACE, *words)
    with log(study, until=0) as refresh:
        end(study, abs_rel=0.5, parameters=5.0)
        end(study, abs_rel=0.4, parameters=10.0)
        outcome = TrialOutcome({"abs_rel": 0.9}, "pruned after epoch 1")
        prune(study, claim_trial(study, "a"), outcome)
        fail(study, claim_trial(study, "a"), "out of memory")
        refresh()
    best = " (best abs_rel 0.5, trial 0)"
    assert lines() == [
        "0 of 4 trials ended",
        f"trial 0 completed: abs_rel 0.5, parameters 5{best}",
        f"trial 1 completed: abs_rel 0.4, parameters 10, parameters above its limit{best}",
        f"trial 2 pruned: pruned after epoch 1{best}",
        f"trial 3 failed: out of memory{best}",
        f"4 of 4 trials ended, 1 pruned, 1 failed{best}",
    ]


LIMIT = ("STUDY.TIMEOUT_S", 60)


@pytest.mark.parametrize(
    ("space", "words", "until", "summary", "reason"),
    [
        ("{MODEL: {BASE: [4, 6]}}", ("STUDY.TRIALS", 9), 0, "2 of 2 trials ended",
         "ended after 2 of 9 trials: every combination has been tried"),
        (SPACE, ("STUDY.TRIALS", 9, "STUDY.PATIENCE", 1), 0, "2 of 9 trials ended",
         "ended after 2 of 9 trials: no better trial among the last 1 (STUDY.PATIENCE)"),
        (SPACE, ("STUDY.TRIALS", 9, *LIMIT), 1.0, "2 of 9 trials ended",
         "ended after 2 of 9 trials: the time limit of 60 s has passed (STUDY.TIMEOUT_S)"),
        (SPACE, ("STUDY.TRIALS", 2, "STUDY.PATIENCE", 1), 0, "2 of 2 trials ended", ""),
        ("{MODEL: {BASE: [4, 6]}}", ("STUDY.SAMPLER", "grid"), 0, "2 of 2 trials ended", ""),
    ],
    ids=["space", "patience", "time limit", "all trials", "grid"],
)  # fmt: skip
def test_a_study_that_has_ended_says_why_and_has_no_time_left(
    open_study, lines, space, words, until, summary, reason
):
    study = open_study(space, *words)
    enqueue(study, [])
    with log(study, until):
        for _ in range(2):
            end(study, abs_rel=0.5)
    assert lines()[-1] == f"{summary} (best abs_rel 0.5, trial 0)"
    assert early_end(study) == reason


def test_the_time_that_is_left_is_that_of_the_trials_that_may_begin(open_study, lines):
    study = open_study(SPACE, "STUDY.TRIALS", 3)
    with log(study, until=0):
        end(study, abs_rel=0.5)
    assert re.search(r"^1 of 3 trials ended .*, about [\d:]+ left$", lines()[-1])


def test_the_last_trials_have_their_lines_where_an_error_ends_a_study(open_study, lines):
    study = open_study(SPACE)
    with pytest.raises(UserError), study_progress(study, until=0) as refresh:
        refresh()
        fail(study, claim_trial(study, "a"), "out of memory")
        raise UserError("the first trials all failed")
    assert lines()[-1] == "trial 0 failed: out of memory"


def test_the_best_of_an_objective_to_maximize_is_the_largest(open_study, lines):
    study = open_study(SPACE, "STUDY.OBJECTIVES", "[delta1]")
    for value in (0.5, 0.9, 0.7):
        end(study, delta1=value)
    log_changes(study, {})
    assert lines()[-1].endswith("(best delta1 0.9, trial 1)")


def test_the_table_shows_running_best_and_failed_trials(open_study):
    study = open_study(SPACE.replace("}}}", "}}, LOSS: {TERMS: [[{name: l1, weight: 1.0}]]}}"))
    for value in (0.5, 0.4):
        end(study, abs_rel=value)
    fail(study, claim_trial(study, "a"), "no [memory] left")
    claim_trial(study, "a")
    console = Console(width=160, force_terminal=True, file=io.StringIO())
    with live_table(study, 0, console):
        pass
    rows = [line.split("│") for line in console.file.getvalue().splitlines() if "│" in line]
    cells = [[re.sub(r"\x1b.*?m", "", cell).strip() for cell in row[1:4]] for row in rows][-4:]
    assert cells == [
        ["3", "running", ""],
        ["1", "completed", "0.4"],
        ["0", "completed", "0.5"],
        ["2", "failed", ""],
    ]
    assert "no [memory] left" in console.file.getvalue()


def test_a_narrow_terminal_loses_no_state_and_no_value(open_study):
    study = open_study(
        "{SEED: {low: 100, high: 999}, TRAIN: {LR: {low: 0.001, high: 0.01}, "
        "WEIGHT_DECAY: {low: 0.001, high: 0.01}, CLIP: {low: 1.0, high: 2.0}}, "
        "LOSS: {OBJECT_WEIGHT: {low: 0.1, high: 0.2}}}"
    )
    end(study, abs_rel=0.5)
    fail(study, claim_trial(study, "a"), "out of memory")
    running = claim_trial(study, "a")
    console = Console(width=80, force_terminal=True, file=io.StringIO())
    with live_table(study, 0, console):
        pass
    text = re.sub(r"\x1b.*?m", "", console.file.getvalue())
    for word in ("running", "completed", "failed", "0.5", f"SEED {running.values['SEED']}"):
        assert word in text
