"""A study that knows the trials of an earlier one: --from."""

import json
import shutil
from pathlib import Path

import optuna
import pytest

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.messages import heard_by
from zoerefine.base.run_dir import RunDir
from zoerefine.cli import main
from zoerefine.commands import search
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.search.study.claims import claim_trial, complete, fail, prune
from zoerefine.lab.search.study.earlier import open_earlier
from zoerefine.lab.search.study.enqueue import params_to_try, take_trials
from zoerefine.lab.search.study.trials import is_known, values_at_steps, without_duplicates
from zoerefine.lab.search.subject import TrialOutcome

WIDE = "{TRAIN: {LR: {low: 0.0001, high: 0.1}}}"
NARROW = "{TRAIN: {LR: {low: 0.0001, high: 0.08}}}"
RANDOM = ("STUDY.SAMPLER", "random")
FAILED, LIMIT = "failed", "above its limit"


@pytest.fixture
def begun(open_study):
    """A study with its files, as the command makes it before its first trial."""

    def make(*words, **options):
        study = open_study(*words, **options)
        study.subject.save(study.run)
        study.bind_data()
        return study

    return make


@pytest.fixture(scope="module")
def kept_study(tmp_path_factory):
    """Where the first test leaves its earlier study for the others."""
    return tmp_path_factory.mktemp("kept") / "earlier"


@pytest.fixture
def earlier(begun, open_study, kept_study, tmp_path):
    """Twelve ended trials: the second failed, the third was pruned by its values at steps, the
    fourth by a limit before it was trained. The AbsRel of the others is ten times their rate."""
    words = (WIDE, *RANDOM, "STUDY.TRIALS", 12)
    if kept_study.exists():
        shutil.copytree(kept_study, tmp_path / "earlier")
        return open_study(*words, folder="earlier")
    study = begun(*words, folder="earlier")
    end_trials(study, {1: FAILED, 2: [0.5, 0.9], 3: LIMIT})
    shutil.copytree(study.run.path, kept_study)
    return study


def end_trials(study, outcomes=None):
    """End all trials; returns how many began."""
    count = 0
    while claim := claim_trial(study, "worker"):
        outcome = (outcomes or {}).get(claim.number)
        score = 10 * claim.values.get("TRAIN.LR", 0.01)
        figures = dict.fromkeys(study.criteria.measured | {"parameters"}, score)
        if outcome is FAILED:
            fail(study, claim, "out of memory")
        elif outcome is LIMIT:
            prune(study, claim, TrialOutcome({"parameters": 9e9}, "too many parameters"))
        elif outcome:
            for step, value in enumerate(outcome):
                study.is_pruned(claim.trial, step, {study.criteria.objectives[0]: value})
            prune(study, claim, TrialOutcome({"abs_rel": outcome[-1]}, "pruned"))
        else:
            complete(study, claim, TrialOutcome(figures))
        count += 1
    return count


def take(study, *sources):
    """Take the trials of other studies; returns the lines that are printed."""
    lines = []
    opened = [open_earlier(one.run.path, study.subject, study.run) for one in sources]
    with heard_by(lines.append):
        take_trials(study, opened)
    return [line.partition(": ")[2] for line in lines]


def rates(trials):
    return [trial.params["TRAIN.LR"] for trial in trials]


def known(study):
    return [trial for trial in study.trials() if is_known(trial)]


def test_trials_inside_the_space_are_known_and_the_others_are_counted(begun, earlier):
    study = begun(NARROW, "STUDY.TRIALS", 4)
    lines = take(study, earlier)
    comparable = [trial for trial in earlier.trials() if trial.number not in (1, 3)]
    inside = [trial for trial in comparable if trial.params["TRAIN.LR"] <= 0.08]
    outside = 10 - len(inside)
    assert set(lines) == {
        f"{len(inside)} trials known here",
        "1 trial left out: failed",
        "1 trial left out: not trained, since a limit was exceeded",
        f"{outside} trials left out: values outside what SEARCH lists",
    }
    assert 1 < outside < 9
    for ours, theirs in zip(known(study), inside, strict=True):
        for name in ("state", "params", "values", "datetime_start", "duration"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert values_at_steps(ours) == values_at_steps(theirs)
        assert ours.user_attrs.get("figures") == theirs.user_attrs.get("figures")
    assert end_trials(study) == 4
    tried = rates(study.trials())
    assert len(set(tried)) == len(tried) == len(inside) + 4
    assert study.best()[0].value == min(one.value for one in study.trials() if one.value)


def test_known_trials_are_added_once_wherever_the_command_is_killed(
    begun, earlier, open_study, monkeypatch
):
    whole = begun(NARROW, *RANDOM, "STUDY.TRIALS", 2, folder="whole")
    take(whole, earlier)
    end_trials(whole)
    for written in (0, 3):
        name = f"killed-{written}"
        study = begun(NARROW, *RANDOM, "STUDY.TRIALS", 2, folder=name)
        add, count = study.optuna.add_trial, 0

        def add_or_die(trial):
            nonlocal count
            if count == written:  # noqa: B023
                raise KeyboardInterrupt
            count += 1
            add(trial)  # noqa: B023

        monkeypatch.setattr(study.optuna, "add_trial", add_or_die)
        with pytest.raises(KeyboardInterrupt):
            take(study, earlier)
        again = open_study(NARROW, *RANDOM, "STUDY.TRIALS", 2, folder=name)
        assert take(again, earlier) == take(whole, earlier)
        end_trials(again)
        assert rates(again.optuna.trials) == rates(whole.optuna.trials)
        assert len(known(again)) == len(known(whole)) > 3


def test_what_is_known_does_not_grow_with_the_earlier_study(begun, earlier, open_study):
    study = begun(WIDE, "STUDY.TRIALS", 1)
    take(study, earlier)
    before = rates(study.trials())
    assert end_trials(open_study(WIDE, *RANDOM, "STUDY.TRIALS", 15, folder="earlier")) == 3
    take(study, earlier)
    assert rates(study.trials()) == before


def test_new_trials_do_not_repeat_those_that_an_earlier_study_sampled(begun):
    """Values follow from seed and number. Without care the third to fifth would be the same."""
    first = begun(WIDE, *RANDOM, "STUDY.TRIALS", 7, folder="first")
    end_trials(first, dict.fromkeys(range(3), FAILED))
    study = begun(WIDE, *RANDOM, "STUDY.TRIALS", 4)
    take(study, first)
    assert end_trials(study) == 4
    assert without_duplicates(study.optuna.trials) == study.optuna.trials
    third = begun(WIDE, *RANDOM, "STUDY.TRIALS", 4, folder="third")
    assert take(third, study)[0] == "8 trials known here"
    end_trials(third)
    sampled = rates(first.trials())[:3] + rates(third.trials())
    assert len(set(sampled)) == 3 + 8 + 4


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (("SEED", 1), "SEED is 0 there and 1 here"),
        (("STUDY.EPOCHS", 2), "STUDY.EPOCHS is 0 there and 2 here"),
        (("STUDY.DEVICES", 2), "STUDY.DEVICES is 1 there and 2 here"),
    ],
)
def test_trials_that_cannot_be_compared_are_tried_again(begun, earlier, words, difference):
    study = begun(WIDE, *RANDOM, "STUDY.TRIALS", 6, *words)
    first, *_ = take(study, earlier)
    assert first == f"values cannot be compared ({difference}): the best 5 are queued first"
    assert not known(study)
    assert take(study, earlier)[0] == first
    assert end_trials(study) == 6
    done = [trial for trial in earlier.trials() if trial.state.name == "COMPLETE"]
    assert rates(study.trials())[:5] == sorted(rates(done))[:5]
    fewer = begun(WIDE, *RANDOM, "STUDY.TRIALS", 3, *words, folder="fewer")
    take(fewer, earlier)
    assert end_trials(fewer) == 3
    assert rates(fewer.trials()[:3]) == sorted(rates(done))[:3]


def test_trials_of_other_data_or_another_commit_cannot_be_compared(begun, earlier):
    earlier.optuna.set_user_attr("data", "0" * 64)
    identity = earlier.optuna.user_attrs["identity"]
    earlier.optuna.set_user_attr("identity", identity | {"commit": "f" * 40})
    first, *_ = take(begun(WIDE), earlier)
    assert first.startswith("values cannot be compared (commit is ffffffffffff there and ")
    assert ", the digest of the data is 000000000000 there and " in first


def test_a_key_that_only_one_study_searches_is_compared_trial_by_trial(begun):
    both = "{TRAIN: {LR: {low: 0.001, high: 0.1}}, MODEL: {MAX_LOG: [0.5, 1.0]}}"
    first = begun(both, *RANDOM, "STUDY.TRIALS", 8, folder="first")
    end_trials(first)
    ours = [one for one in first.trials() if one.params["MODEL.MAX_LOG"] == 1.0]
    fixed = begun("{TRAIN: {LR: {low: 0.001, high: 0.1}}}", "MODEL.MAX_LOG", 1.0, folder="fixed")
    assert take(fixed, first)[0] == f"{len(ours)} trials known here"
    assert rates(fixed.trials()) == rates(ours)
    assert 0 < len(ours) < 8
    wider = "{TRAIN: {LR: {low: 0.001, high: 0.1}}, MODEL: {MAX_LOG: [1.0, 2.0]}}"
    assert take(begun(wider, folder="wider"), fixed)[0] == f"{len(ours)} trials known here"


def test_values_between_the_steps_of_a_range_lie_outside(begun, earlier):
    stepped = begun("{TRAIN: {LR: {low: 0.0001, high: 0.1001, step: 0.01}}}")
    assert take(stepped, earlier)[0] == "0 trials known here"


def test_limits_are_those_of_the_new_study(begun, earlier):
    limits = "[{name: parameters, at_most: 0.3}]"
    study = begun(WIDE, "STUDY.CONSTRAINTS", limits)
    take(study, earlier)
    assert study.best()[0].value == min(one.value for one in known(study) if one.value)
    limited = [one.constraints["parameters"] for one in known(study) if one.constraints]
    assert min(limited) <= 0 < max(limited)
    latency = begun(WIDE, "STUDY.CONSTRAINTS", "[{name: latency_ms, at_most: 9}]", folder="latency")
    missing = "9 trials left out: no figure of latency_ms, which STUDY.CONSTRAINTS limits"
    assert missing in take(latency, earlier)


def test_known_trials_use_up_no_patience_and_no_budget(begun, earlier):
    study = begun(WIDE, *RANDOM, "STUDY.PATIENCE", 2, "STUDY.TRIALS", 6)
    take(study, earlier)
    best = study.best()[0].value
    count = end_trials(study)
    assert count >= 2
    assert count == 2 or study.best()[0].value < best


def test_a_grid_runs_only_what_is_not_known(begun, open_study):
    first = begun("{TRAIN: {LR: [0.01, 0.02]}}", "STUDY.SAMPLER", "grid", folder="first")
    end_trials(first)
    study = begun("{TRAIN: {LR: [0.01, 0.02, 0.03]}}", "STUDY.SAMPLER", "grid")
    take(study, first)
    assert end_trials(study) == 1
    assert sorted(rates(study.trials())) == [0.01, 0.02, 0.03]


def test_a_study_with_other_objectives_is_refused(begun, earlier, tmp_path):
    for objectives, ours in (
        ("[delta1]", "maximize delta1"),
        ("[abs_rel, parameters]", "minimize abs_rel, minimize parameters"),
    ):
        study = begun(WIDE, "STUDY.OBJECTIVES", objectives, folder=ours[:5])
        there = "has other objectives: minimize abs_rel there"
        with pytest.raises(UserError, match=f"{there}, {ours} here"):
            take(study, earlier)


def test_a_folder_without_a_study_and_the_study_itself_are_refused(begun, earlier, tmp_path):
    with pytest.raises(UserError, match="is this study itself"):
        take(earlier, earlier)
    with pytest.raises(UserError, match="is not a study"):
        open_earlier(tmp_path / "none", earlier.subject, earlier.run)
    shutil.rmtree(earlier.run.path / "trials", ignore_errors=True)
    (earlier.run.path / "study.db").unlink()
    with pytest.raises(UserError, match="there is no database"):
        take(begun(WIDE), earlier)


def test_the_command_goes_on_from_a_study_and_publishes_its_best(earlier, tiny, script, tmp_path):
    words = ("SEARCH", WIDE, "STUDY.TRIALS", 1, "RUN.NAME", "second", "TRAIN.PICTURES", 0)
    options = ("--config", tiny, "--from", earlier.run.path, "--notify", "tee notified.json")
    done = script("search", *options, *map(str, words))
    told = json.loads((tmp_path / "notified.json").read_text())
    assert (told["what"], told["state"]) == ("search", "finished")
    assert told["run"] == done.stdout.strip()
    assert f"--from {earlier.run.path}: 10 trials known here" in done.stderr
    assert "1 of 1 trials ended, 10 known before" in done.stderr
    folder = tmp_path / "runs" / "second" / "study"
    assert [path.name for path in (folder / "trials").iterdir()] == ["0010"]
    best = min((one for one in earlier.trials() if one.value), key=lambda one: one.value)
    assert f"({earlier.run.path}/trials/{best.number:04d})" in done.stderr
    assert best.params["TRAIN.LR"] == load_config(folder / "best.yaml").TRAIN.LR
    done = script("analyze", folder, "--out", "report")
    note = f"note on {folder}: 10 trials that it knows from earlier studies have no runs there"
    assert f"{note}, and are not listed\n" in done.stdout


def test_the_best_of_a_study_are_tried_first_with_what_it_knows_from_another(begun, earlier):
    study = begun(WIDE, *RANDOM, "STUDY.TRIALS", 2)
    take(study, earlier)
    end_trials(study)
    later = begun(WIDE, "STUDY.OBJECTIVES", "[delta1]", folder="later")
    done = sorted(rates(one for one in study.trials() if one.state.name == "COMPLETE"))
    assert [one["TRAIN.LR"] for one in params_to_try(later.subject, [study.run.path])] == done[:5]


def test_the_best_of_a_study_are_those_by_its_own_objective_within_its_limits(begun):
    words = ("STUDY.OBJECTIVES", "[delta1]", "STUDY.CONSTRAINTS",
             "[{name: parameters, at_most: 5}]", "STUDY.TRIALS", 6)  # fmt: skip
    study = begun("{TRAIN: {LR: {low: 0.001, high: 0.1}}}", *words, *RANDOM, folder="limited")
    figures = [(0.5, 1), (0.9, 6), (0.7, 1), (0.6, 1), (0.8, 1)]
    for delta1, parameters in figures:
        found = {"delta1": delta1, "abs_rel": delta1 / 2, "parameters": float(parameters)}
        complete(study, claim_trial(study, "worker"), TrialOutcome(found))
    fail(study, claim_trial(study, "worker"), "out of memory")
    tried = rates(study.trials())
    later = begun(WIDE, folder="later")
    found = [one["TRAIN.LR"] for one in params_to_try(later.subject, [study.run.path])]
    assert found == [tried[number] for number in (4, 2, 3, 0, 1)]


def test_a_study_without_a_completed_trial_or_of_other_names_is_not_tried_first(begun):
    empty = begun(WIDE, folder="empty")
    with pytest.raises(UserError, match=r"empty has no completed trial: give another study"):
        params_to_try(empty.subject, [empty.run.path])
    options = optuna.distributions.CategoricalDistribution(["NAME small"])
    older = optuna.trial.create_trial(
        params={"MODEL": "NAME small"}, distributions={"MODEL": options}, value=0.1
    )
    empty.optuna.add_trial(older)
    named_otherwise = r"named its parameters otherwise \(MODEL: NAME small\)"
    with pytest.raises(UserError, match=named_otherwise):
        params_to_try(empty.subject, [empty.run.path])
    with pytest.raises(UserError, match=named_otherwise):
        take(begun(WIDE), empty)


def test_the_run_of_a_known_trial_is_not_removed(begun, earlier, capsys):
    """Its earlier study keeps it, even without a database."""
    later = begun(WIDE, folder="later")
    take(later, earlier)
    run = RunDir(Path(known(later)[0].user_attrs["known_from"]["run"]))
    provenance.add(run, commit="")
    run.set_status("finished")
    for name in ("study.db", "config.yaml", "provenance.json", ".study.lock"):
        (earlier.run.path / name).unlink(missing_ok=True)
    for place in (earlier.run.path, run.path):
        assert main(["runs", str(place), "--remove", "--older-than", "0", "--yes"]) == 0
        assert "it belongs to a study" in capsys.readouterr().err
        assert run.status().state == "finished"


def test_a_plan_refuses_what_the_search_refuses_and_counts_what_is_there(earlier, tiny, here):
    words = ["--config", str(tiny), "SEARCH", WIDE, "--from", str(earlier.run.path)]
    for plan in ([], ["--plan"]):
        with pytest.raises(UserError, match="minimize abs_rel there, maximize delta1 here"):
            search.main([*words, *plan, "STUDY.OBJECTIVES", "[delta1]"])
    assert f"--from {earlier.run.path}: trials there: 12\n" in here("search", *words, "--plan").out
    assert not (tiny.parent / "runs").exists()
