"""Searching scripts of other repositories: a trial is a launch, its value the script's own."""

import os
import random
import re
import signal
import time
from contextlib import suppress

import optuna
import pytest

from tests.foreign import KINDS, Gate
from tests.lab.search.conftest import search_words, study_on_disk
from tests.processes import children, end_of, ended, is_alive, kills
from zoerefine.base.errors import UserError
from zoerefine.base.registries import PRUNERS
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.read import read_yaml
from zoerefine.cli import load
from zoerefine.commands import search
from zoerefine.lab.search.script import runner
from zoerefine.lab.search.study.earlier import find_study, open_earlier
from zoerefine.lab.search.study.enqueue import params_to_try, take_trials
from zoerefine.lab.search.study.trials import is_known, reason_of, trial_run
from zoerefine.lab.search.worker import run_worker

pytestmark = pytest.mark.usefixtures("own_folder")
KILLS = kills(2)


def check_trials(repository, tmp_path, count, **values):
    """Every trial ran to its end once, and has the value that the script gives by hand."""
    run, trials = study_on_disk(tmp_path)
    assert run.status().state == "finished"
    assert [trial.number for trial in trials] == list(range(count))
    folders = sorted(path.name for path in (run.path / "trials").iterdir())
    assert folders == [f"{number:04d}" for number in range(count)]
    for trial in trials:
        assert trial.state.name == "COMPLETE", trial.user_attrs
        (rate,) = trial.params.values()
        by_hand = repository.run_by_hand(tmp_path / "hand" / str(trial.number), lr=rate, **values)
        assert trial.value == pytest.approx(by_hand, rel=1e-6)  # TensorBoard keeps float32
        assert repository.final(trial_run(run, trial.number).path / "left") == by_hand
    return trials


def running_trials(tmp_path):
    """The runs of trials whose script runs now."""
    runs = [RunDir(path.parent) for path in tmp_path.glob("runs/*/study/trials/*/status.json")]
    return [run for run in runs if run.status().state == "running"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_worker_changes_no_number(
    kind, foreign_repository, tmp_path, start_script, wait_until, monkeypatch
):
    repository = foreign_repository(kind)
    words = ("--trials", 4, "--workers", 2, "STUDY.PRUNER", "none", *repository.set(epochs=3))
    gate = Gate(tmp_path, monkeypatch)
    driver = start_script("search", *search_words(repository, *words))
    wait_until(lambda: len(running_trials(tmp_path)) == 2, driver)
    run = running_trials(tmp_path)[0]
    worker = run.status().pid
    os.kill(worker, signal.SIGKILL)
    # Its script ends with it. Before that, nobody would read what the script prints.
    wait_until(lambda: run.status().state != "running" or run.status().pid != worker, driver)
    gate.open()
    _, errors = end_of(driver)
    assert "died with exit code 137: another is started" in errors
    trials = check_trials(repository, tmp_path, 4, epochs=3)
    assert sum(bool(trial.user_attrs.get("lost_claims")) for trial in trials) == 1
    best = max(trials, key=lambda trial: trial.value)
    assert f"best: trial {best.number}, val_acc {best.value:.4g}" in errors


def test_after_kills_at_any_moment_no_trial_is_counted_twice(
    foreign_repository, tmp_path, start_script, script, wait_until
):
    repository = foreign_repository("argparse_csv")
    settings = repository.set(epochs=3, epoch_s=0.1)
    trials = 4 + KILLS // 4
    words = search_words(repository, "--trials", trials, "--workers", 2, "STUDY.PRUNER", "none",
                         "STUDY.RETRIES", 2 * KILLS, *settings)  # fmt: skip
    moments = random.Random(0)
    for kill in range(KILLS):
        driver = start_script("search", *words)
        wait_until(lambda d=driver: children(d.pid) or d.poll() is not None)
        time.sleep(moments.uniform(0, 6))
        workers = children(driver.pid) if driver.poll() is None else []
        if kill % 2 and workers:
            with suppress(ProcessLookupError):  # it may just have ended
                os.kill(moments.choice(workers), signal.SIGKILL)
            time.sleep(moments.uniform(0, 1))
        driver.send_signal(signal.SIGKILL)
        ended(driver, "search")
        wait_until(lambda w=workers: not any(map(is_alive, w)))
    script("search", *words)
    check_trials(repository, tmp_path, trials, epochs=3, epoch_s=0.0)


def test_ctrl_c_stops_the_scripts_and_the_same_command_goes_on(
    foreign_repository, tmp_path, start_script, script, wait_until, monkeypatch
):
    repository = foreign_repository("plain_prints")
    words = search_words(repository, "--trials", 2, *repository.set(epochs=4))
    gate = Gate(tmp_path, monkeypatch)
    driver = start_script("search", *words)
    wait_until(gate.waiting, driver)
    driver.send_signal(signal.SIGINT)
    end_of(driver, 130)
    assert not running_trials(tmp_path)
    gate.open()
    script("search", *words)
    trials = check_trials(repository, tmp_path, 2, epochs=4)
    assert not any(trial.user_attrs.get("lost_claims") for trial in trials)


# In this process: what a worker does with single trials.


def run_trials(study):
    run_worker(study.run, "here")
    return study.trials()


def below(steps):
    """A pruner that stops a trial below 0.5."""
    return optuna.pruners.ThresholdPruner(lower=0.5)


@pytest.fixture
def pruned_below_half(monkeypatch):
    """The words that choose this pruner."""
    monkeypatch.setitem(PRUNERS, "below", f"{__name__}:below")
    return ("--trials", 1, "STUDY.PRUNER", "below")


@pytest.mark.parametrize("kind", KINDS)
def test_a_pruned_script_is_stopped_and_keeps_its_last_value(
    kind, foreign_repository, open_script_study, pruned_below_half
):
    repository = foreign_repository(kind)
    values = {"epochs": 10_000, "epoch_s": 0.05}
    study = open_script_study(repository, *pruned_below_half, space="[0.000001]", **values)
    (trial,) = run_trials(study)
    assert trial.state.name == "PRUNED"
    assert re.fullmatch(r"pruned at step \d+, val_acc 0\.\d+", reason_of(trial))
    assert 0 < trial.user_attrs["figures"]["val_acc"] < 0.5
    assert max(trial.intermediate_values) < 9_000
    status = trial_run(study.run, 0).status()
    assert (status.state, status.reason) == ("killed", reason_of(trial))


def test_rows_that_the_commit_has_in_a_log_prune_no_trial(
    foreign_repository, open_script_study, pruned_below_half
):
    repository = foreign_repository("plain_prints")
    append = (
        "import time\n"
        "for step in (11, 12):\n"
        "    with open('log.csv', 'a') as file:\n"
        "        file.write(f'{step},0.75\\n')\n"
        "    time.sleep(1)\n"
    )
    repository.change({"main.py": append, "log.csv": "step,val_acc\n1,0.1\n2,0.2\n"})
    study = open_script_study(repository, *pruned_below_half, space="[0.01]")
    (trial,) = run_trials(study)
    assert trial.state.name == "COMPLETE" and trial.value == 0.75
    assert set(trial.intermediate_values) <= {11, 12}


def test_a_pruned_script_that_ignores_ctrl_c_is_killed_after_the_grace_time(
    foreign_repository, open_script_study, pruned_below_half, monkeypatch
):
    monkeypatch.setattr(runner, "GRACE_S", 0.5)
    repository = foreign_repository("plain_prints")
    deaf = "import signal\nsignal.signal(signal.SIGINT, lambda *_: print('no', flush=True))\n"
    repository.edit("main.py", lambda text: deaf + text)
    values = {"epochs": 10_000, "epoch_s": 0.05}
    study = open_script_study(repository, *pruned_below_half, space="[0.000001]", **values)
    (trial,) = run_trials(study)
    assert trial.state.name == "PRUNED"
    assert "\nno\n" in trial_run(study.run, 0).log_file.read_text()


def test_a_first_trial_without_the_metric_names_those_that_exist_and_waits(
    foreign_repository, open_script_study
):
    repository = foreign_repository("yacs_tensorboard")
    study = open_script_study(repository, "--trials", 1, "--metric", "accuracy")
    known = "the run has no metric accuracy: it has train/loss, val_acc"
    with pytest.raises(UserError, match=known):
        run_trials(study)
    (trial,) = study.trials()
    assert trial.state.name == "WAITING"


def test_a_script_that_fails_is_a_failed_trial_with_its_last_error(
    foreign_repository, open_script_study
):
    study = open_script_study(foreign_repository("plain_prints"), "--trials", 1, space="[-1.0]")
    (trial,) = run_trials(study)
    assert trial.state.name == "FAIL"
    assert reason_of(trial) == "ValueError: math domain error"


def test_a_grid_tries_every_combination_and_the_best_is_a_config(
    foreign_repository, tmp_path, script
):
    repository = foreign_repository("yacs_tensorboard")
    words = search_words(repository, "--grid", "STUDY.PRUNER", "none", space="[0.1, 0.01, 0.001]")
    done = script("search", *words)
    trials = check_trials(repository, tmp_path, 3)
    assert sorted(trial.params["TRAIN.LR"] for trial in trials) == [0.001, 0.01, 0.1]
    run, _ = study_on_disk(tmp_path)
    committed = (repository.folder / repository.config).read_text()
    best = (run.path / "best.yaml").read_text()
    assert best == committed.replace("LR: 0.1 ", "LR: 0.01 ")

    command = re.search(r"^best again: zoerefine run (.*)$", done.stderr, re.MULTILINE)[1]
    assert load("run")(command.split()) == 0
    best_value = max(trial.value for trial in trials)
    again = repository.final(tmp_path / "runs" / "mnist" / "latest" / "left")
    assert again == pytest.approx(best_value, rel=1e-6)


def test_a_section_of_the_config_is_searched_and_the_script_does_not_see_it(
    foreign_repository, open_script_study
):
    repository = foreign_repository("yacs_tensorboard")  # YACS refuses keys that it does not know
    text = (repository.folder / repository.config).read_text()
    for name, section in (
        ("one", "SEARCH: {TRAIN: {LR: [0.1]}, SEED: {low: 7, high: 7}}\n"),
        ("two", "HPO:\n  USE_HPO: True\n  TRAIN:\n    LR: [0.1]\n  SEED: [7]\n"),
    ):
        repository.change({repository.config: text + section})
        study = open_script_study(repository, "--trials", 1, "--name", name, space="")
        (trial,) = run_trials(study)
        assert trial.state.name == "COMPLETE", reason_of(trial)
        assert trial.params == {"TRAIN.LR": 0.1, "SEED": 7}


def test_configs_and_best_trials_of_another_study_are_tried_first(
    foreign_repository, open_script_study, tmp_path
):
    repository = foreign_repository("plain_prints")
    first = open_script_study(repository, "--grid", space="[0.1, 0.02, 0.001]", epochs=2)
    run_trials(first)
    known = tmp_path / "known.yaml"
    known.write_text("lr: 0.03\nseed: 0\n")
    enqueued = ("--enqueue", known, first.run.path, "--trials", 4, "--name", "second")
    second = open_script_study(repository, *enqueued, epochs=2)
    assert [trial.params["lr"] for trial in run_trials(second)] == [0.03, 0.02, 0.1, 0.001]


def test_a_trial_that_failed_without_an_exit_code_is_not_tried_first(
    foreign_repository, open_script_study
):
    repository = foreign_repository("plain_prints")
    value = "{val_acc if settings['lr'] < 0.4 else float('nan')!r}"
    repository.edit("main.py", lambda text: text.replace("{val_acc!r}", value))
    first = open_script_study(repository, "--grid", space="[0.5, 0.1, 0.02]", epochs=2)
    failed = [trial for trial in run_trials(first) if trial.state.name == "FAIL"]
    assert [trial.params["lr"] for trial in failed] == [0.5]
    subject = open_script_study(repository, "--name", "second").subject
    assert params_to_try(subject, [first.run.path]) == [{"lr": 0.02}, {"lr": 0.1}]


def test_a_value_that_an_earlier_study_gave_as_a_word_is_the_one_of_its_trials(
    foreign_repository, open_script_study
):
    repository = foreign_repository("yacs_tensorboard")
    words = ("--overrides", "arguments", "--search", "SEED=[0]", "TRAIN.LR", 0.02)
    first = open_script_study(repository, *words, "--name", "first", space="", epochs=2)
    run_trials(first)
    second = open_script_study(repository, epochs=2)
    assert params_to_try(second.subject, [first.run.path]) == [{"TRAIN.LR": 0.02}]
    take_trials(second, [open_earlier(first.run.path, second.subject, second.run)])
    (queued,) = second.trials()
    assert queued.system_attrs["fixed_params"] == {"TRAIN.LR": 0.02}


def test_trials_of_an_earlier_study_are_known(foreign_repository, open_script_study):
    repository = foreign_repository("plain_prints")
    first = open_script_study(repository, "--grid", space="[0.1, 0.02]", epochs=2)
    done = run_trials(first)
    words = ("--grid", "--name", "second")
    second = open_script_study(repository, *words, space="[0.02, 0.1, 0.05]", epochs=2)
    second.bind_data()
    take_trials(second, [open_earlier(first.run.path, second.subject, second.run)])
    tried = run_trials(second)
    for ours, theirs in zip(filter(is_known, tried), done, strict=True):
        assert (ours.params, ours.value) == (theirs.params, theirs.value)
    assert [path.name for path in (second.run.path / "trials").iterdir()] == ["0002"]
    longer = open_script_study(repository, "--grid", "--name", "third", space="[0.1]", epochs=3)
    longer.bind_data()
    take_trials(longer, [open_earlier(first.run.path, longer.subject, longer.run)])
    assert [trial.state.name for trial in longer.trials()] == ["WAITING"]  # the grid's own


def test_a_trial_is_reproduced_and_its_repetition_is_no_trial(foreign_repository, tmp_path, script):
    repository = foreign_repository("argparse_csv")
    script("search", *search_words(repository, "--grid", space="[0.1]"))
    run, _ = study_on_disk(tmp_path)
    done = script("reproduce", run.path, code=2)
    assert "best      trial 0, val_acc 0.6553" in done.stdout
    assert f"cannot be reproduced: give one of its trials, in {run.path}/trials" in done.stderr
    assert "REPRODUCED" in script("reproduce", trial_run(run, 0).path).stdout
    assert (run.path / "trials" / "0000-again1").is_dir()
    (trial,) = study_on_disk(tmp_path)[1]
    assert trial.number == 0


TOGETHER = """
import os, torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(())
dist.all_reduce(total)
dist.destroy_process_group()
if os.environ["RANK"] != "0":
    raise SystemExit
print("processes", int(total), flush=True)
"""


def test_each_trial_of_a_search_with_processes_is_started_by_torchrun(
    foreign_repository, tmp_path, script
):
    repository = foreign_repository("plain_prints")
    repository.edit("main.py", lambda text: TOGETHER + text)
    words = ("--grid", "--processes", 2, *repository.set(epochs=2))
    done = script("search", *search_words(repository, *words, space="[0.1, 0.01]"))
    run, trials = study_on_disk(tmp_path)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 2
    for trial in trials:
        launched = trial_run(run, trial.number)
        assert "processes 2\n" in launched.log_file.read_text()
        assert launched.read_json(launched.provenance_file)["processes"] == 2
        assert trial.value == repository.final(launched.left)
    command = re.search(r"^best again: zoerefine run (.*)$", done.stderr, re.MULTILINE)[1]
    assert "--processes=2" in command.split()


def test_a_worker_that_joins_runs_trials_from_what_the_folder_says(
    foreign_repository, open_script_study, script
):
    repository = foreign_repository("argparse_csv")
    study = open_script_study(repository, "--grid", space="[0.1, 0.01]")
    script("search", "--join", study.run.path)
    states = [(trial.state.name, trial.user_attrs["worker"][:7]) for trial in study.trials()]
    assert states == [("COMPLETE", "joined-")] * 2


def test_values_can_be_given_as_words(foreign_repository, open_script_study):
    repository = foreign_repository("yacs_tensorboard")
    words = ("--overrides", "arguments", "--trials", 1)
    study = open_script_study(repository, *words, space="[0.02]")
    (trial,) = run_trials(study)
    assert trial.state.name == "COMPLETE", reason_of(trial)
    run = trial_run(study.run, 0)
    assert read_yaml(run.path / "input.yaml").tree["TRAIN"]["LR"] == 0.1
    assert run.read_json(run.provenance_file)["overrides"] == ["TRAIN.LR", "0.02"]


def test_trials_have_the_provenance_of_their_launches(foreign_repository, open_script_study):
    repository = foreign_repository("argparse_csv")
    study = open_script_study(repository, "--trials", 1, space="[0.02]")
    run_trials(study)
    run = trial_run(study.run, 0)
    facts = run.read_json(run.provenance_file)
    assert (facts["commit"], facts["module"]) == (repository.commit, "train.py")
    assert (facts["exit_status"], facts["attempt"]) == (0, 1)
    assert facts["overrides"] == ["training.lr", "0.02"]
    storage, _ = find_study(study.run, "")  # for the dashboard
    assert storage.get_all_studies()[0].study_name == "settings"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metric", "val_acc"], "SEARCH is empty"),
        (["--search", "TRAIN.LRR=1..2"], "did you mean TRAIN.LR?"),
        (["--search", "TRAIN.LR=1..2", "--metric", ""], "--metric is missing"),
        (["--search", "TRAIN.LR=1..2", "--commit", "nowhere"], "nowhere"),
        (["--search", "TRAIN.LR=1..2", "--module", "tools/tain.py"], "no script tools/tain.py"),
        (["--search", "TRAIN.LR=1..2", "--grid"], "SEARCH.TRAIN.LR has no end of them"),
        (["--search", "TRAIN.LR=1..2", "--then", "train"], "STUDY.THEN is for zoerefine's own"),
        (["--search", "TRAIN.LR=1..2", "STUDY.TRIALS", "0"], "STUDY.TRIALS must be an integer"),
        (["--search", "TRAIN.LR=1..2", "TRAIN.EPOCH", "3"], "did you mean TRAIN.EPOCHS?"),
        (["SEARCH.TRAIN.LR", "[1.0]"], "give --search 'KEY=LOW..HIGH' or --space FILE"),
        (["--search", "TRAIN.LR=1..2", "--again"], "give --name or RUN.NAME to search once more"),
        (["--search", "TRAIN.LR=1..2", "--allow-dirty"], "commit the changes first"),
        (["--space", "nowhere.yaml"], "no config file nowhere.yaml"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_refused_before_anything_is_written(
    words, message, foreign_repository, tmp_path
):
    repository = foreign_repository("yacs_tensorboard")
    with pytest.raises(UserError) as caught:
        search.main(search_words(repository, *words, space=""))
    assert message in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_another_space_or_commit_is_another_study(foreign_repository, open_script_study):
    repository = foreign_repository("plain_prints")
    open_script_study(repository, space="[0.1]")
    with pytest.raises(UserError, match=r"give another --name:\n  SEARCH\.lr: \[0\.1\] there"):
        open_script_study(repository, space="[0.2]")
    repository.change({"README": "new"})
    with pytest.raises(UserError, match=r"give another --name:\n  commit: \w{40} there, \w{40}"):
        open_script_study(repository, space="[0.1]")
    open_script_study(repository, "--name", "new", space="[0.1]")


def test_a_plan_is_printed_and_nothing_is_run(foreign_repository, tmp_path, capsys):
    repository = foreign_repository("plain_prints")
    assert search.main(search_words(repository, "--plan", "--trials", "7")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "the space:",
        "  lr: 0.001 to 0.1, logarithmic",
        "  in total infinitely many combinations",
        "maximize: val_acc",
        f"each trial: main.py at commit {repository.commit[:12]}",
        "7 trials by tpe, workers: 1",
    ]
    assert not (tmp_path / "runs").exists()


def test_a_branch_stands_for_its_newest_commit(foreign_repository, capsys):
    repository = foreign_repository("plain_prints")
    words = search_words(repository, "--plan")
    place = words.index("--commit")
    words[place : place + 2] = ["--branch", "main"]
    assert search.main(words) == 0
    assert f"at commit {repository.commit[:12]}" in capsys.readouterr().out


def test_a_plan_and_the_search_refuse_wrong_configs_and_studies_before_anything_is_written(
    foreign_repository, tmp_path, capsys
):
    repository = foreign_repository("plain_prints")
    far, near = tmp_path / "far.yaml", tmp_path / "near.yaml"
    far.write_text("lr: 3.0\nseed: 0\n")
    near.write_text("lr: 0.03\nseed: 0\n")
    for plan in ([], ["--plan"]):
        for words, fault in (
            (["--enqueue", far], "far.yaml: its values lie outside"),
            (["--enqueue", tmp_path / "none.yaml"], "none.yaml"),
            (["--enqueue", tmp_path], "is not a study: give the folder"),
            (["--from", tmp_path], "is not a study"),
        ):
            with pytest.raises(UserError, match=fault):
                search.main(search_words(repository, *plan, *words))
    assert search.main(search_words(repository, "--plan", "--enqueue", near)) == 0
    assert capsys.readouterr().out.endswith("tried first (--enqueue): 1\n")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("FLAG: 1\nEXTRA: {B: {}}", r"EXTRA.A: {} there, absent here"),
        ("FLAG: 1\nEXTRA: {A: {}}\ncommit: x", r"commit \(config\): absent there, x here"),
        ("FLAG: true\nEXTRA: {A: {}}", "FLAG: 1 there, True here"),
        ("FLAG: 1\nEXTRA: {A: {}}\nNONE: null", "NONE: absent there, None here"),
    ],
)
def test_a_study_is_refused_where_any_key_of_its_config_is_another(
    change, message, foreign_repository, open_script_study, tmp_path
):
    repository = foreign_repository("yacs_tensorboard")
    text = (repository.folder / repository.config).read_text()
    config = tmp_path / "own.yaml"
    words = ("--config", config, "--name", "own")
    config.write_text(f"{text}\nFLAG: 1\nEXTRA: {{A: {{}}}}\n")
    open_script_study(repository, *words)
    open_script_study(repository, *words)
    config.write_text(f"{text}\n{change}\n")
    with pytest.raises(UserError, match=f"has other settings(?s:.*)\n  {message}"):
        open_script_study(repository, *words)
