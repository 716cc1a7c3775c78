"""Queues: every combination once, N jobs at a time, and nothing lost when they are stopped."""

import io
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.foreign import commit_files
from tests.processes import end_of, run_zoerefine
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.job import Job
from zoerefine.lab.launch.plan import plan_file
from zoerefine.lab.launch.queue.executor import LaunchProcess, LocalExecutor, open_executor
from zoerefine.lab.launch.queue.job_queue import make_queue, run_queue
from zoerefine.lab.launch.queue.table import QueueRow, progress_of, render_table


@pytest.fixture
def queue(repository, home, tmp_path, config, monkeypatch):
    """Make a queue of the repository's job."""
    monkeypatch.chdir(tmp_path)

    def make(commits=None, configs=None, seeds=(), **options):
        job = Job(str(repository.folder), "main", config, module="job.py", **options)
        commits = commits or [repository.first]
        return make_queue(job, commits, configs or [config], seeds, tmp_path / "runs", home)

    return make


def test_every_combination_runs_once_and_never_again(queue, repository, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text("OTHER: 1\n")
    configs = [tmp_path / "job.yaml", other]
    words = {"commits": ["main", repository.first], "configs": configs, "seeds": [0, 1]}
    jobs = queue(**words)
    assert len({job.run.path for job in jobs}) == 8
    with open_executor("local") as executor:
        assert run_queue(jobs, executor, parallel=3) == 0
        logs = [job.run.log_file.read_text() for job in jobs]
        assert sum("version two" in log for log in logs) == 4
        assert sum("'SEED', '1'" in log for log in logs) == 4
        again = queue(**words)
        assert {job.state for job in again} == {"finished before"}
        assert run_queue(again, executor, parallel=3) == 0
    assert [job.run.log_file.read_text() for job in again] == logs


def test_equal_jobs_are_queued_once(queue, repository):
    assert len(queue(commits=["main", repository.second, repository.second[:10]])) == 1


def test_a_failed_job_is_reported_and_the_others_run(queue, tmp_path, capfd):
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    bad.write_text("fail: 1\n")
    good.write_text("fine: 1\n")
    with open_executor("local") as executor:
        jobs = queue(configs=[bad, good])
        assert run_queue(jobs, executor, parallel=1) == 1
    assert [job.state for job in jobs] == ["failed", "finished"]
    assert "it went wrong" in capfd.readouterr().err


def test_a_quiet_queue_prints_its_runs_and_why_jobs_failed(
    queue, repository, home, config, tmp_path
):
    config.write_text("fail: 1\n")
    job = queue(seeds=[0])[0]
    words = ("--repo", str(repository.folder), "--commit", repository.first, "--module", "job.py")
    words += ("--home", str(home), "--runs", "runs", "--config", str(config), "--seeds", "0", "-q")
    done = run_zoerefine(tmp_path, "run", *words, code=1)
    assert done.stdout == f"{job.run.path}\n"
    assert done.stderr.startswith("error: ") and "it went wrong" in done.stderr


def test_a_refused_launch_is_reported(queue, capfd):
    with open_executor("local") as executor:
        jobs = queue()
        jobs[0].words = tuple(w.replace("=job.py", "=absent.py") for w in jobs[0].words)
        assert run_queue(jobs, executor, parallel=1) == 1
    assert "the commit has no script absent.py" in capfd.readouterr().err


def test_a_config_that_changes_while_jobs_wait_does_not_change_them(queue, config, tmp_path):
    jobs = queue(seeds=[0, 1])
    config.write_text("KEY: changed\n")
    with open_executor("local") as executor:
        assert run_queue(jobs, executor, parallel=1) == 0
    for job in jobs:
        assert job.run.status().state == "finished"
        assert (job.run.path / "input.yaml").read_text() == "KEY: value\n"
        assert not plan_file(job.run).exists()
    changed = queue(seeds=[0])[0]
    assert changed.run.path not in {job.run.path for job in jobs}


def test_ctrl_c_stops_every_job_and_the_same_command_resumes(launch, config, tmp_path, wait_until):
    gate = tmp_path / "gate"
    config.write_text(f"steps: 1\ngate: {gate}\n")
    words = ("--seeds", "0:3", "--parallel", "2", "--runs", tmp_path / "runs")
    running = launch(*words, background=True)
    runs = tmp_path / "runs" / "job"
    wait_until(lambda: len(list(runs.glob("*-*/steps.txt"))) == 2, running)
    running.send_signal(signal.SIGINT)
    end_of(running, 130)
    states = [RunDir(path).status().state for path in runs.glob("*-*")]
    assert states == ["killed", "killed"]
    gate.touch()
    launch(*words)
    for path in runs.glob("*-*/steps.txt"):
        steps = [line.split()[0] for line in path.read_text().splitlines()]
        assert steps == [str(step) for step in range(12)]
    assert len(list(runs.glob("*-*/results.json"))) == 3


def test_the_table_ends_with_the_metric_that_the_script_logged(
    foreign_repository, home, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    repository = foreign_repository("yacs_tensorboard")
    job = Job(str(repository.folder), "main", Path(repository.config), module=repository.script)
    job = replace(job, config_flag="--cfg", overrides=tuple(repository.set(epochs=2)))
    (row,) = make_queue(job, ["main"], [job.config], (), tmp_path / "runs", home)
    with open_executor("local") as executor:
        assert run_queue([row], executor, parallel=1) == 0
    final = repository.final(row.run.left)
    assert f"val_acc {final:.4g}" in progress_of(row)
    assert "epoch" not in progress_of(row)


def test_a_training_of_ours_is_shown_by_the_metric_that_it_selects_by(tmp_path):
    run = RunDir(tmp_path)
    row = QueueRow("job", run, state="running")
    run.metrics_file.write_text('{"phase": "train", "step": 1, "epoch": 0, "loss": 0.5}\n')
    assert progress_of(row) == "loss 0.5"
    metrics = '{"pseudo": {"abs_rel": 0.3}, "refined": {"abs_rel": 0.1}}'
    run.metrics_file.write_text(f'{{"phase": "val", "step": 1, "epoch": 0, {metrics[1:]}\n')
    assert progress_of(row) == "refined.abs_rel 0.1"
    run.results_file.write_text(f'{{"schema": 1, "val": {metrics}}}')
    row.state = "finished"
    assert progress_of(row) == "val.refined.abs_rel 0.1"


def table_lines(rows):
    """The table of a queue in a terminal of 80 columns."""
    console = Console(width=80, file=io.StringIO())
    console.print(render_table(rows, console.width))
    return console.file.getvalue().splitlines()


def test_a_narrow_table_shows_states_and_seeds_with_running_jobs_first(tmp_path):
    rows = [
        QueueRow(f"{'0' * 12} config.yaml seed {seed}", RunDir(tmp_path / "runs" / "config" / "id"))
        for seed in range(24)
    ]
    for row in rows[:20]:
        row.state = "finished"
    rows[21].state, rows[21].seconds = "running", 61.0
    (tmp_path / "runs" / "config" / "id").mkdir(parents=True)
    rows[21].run.log_file.write_text("a long line of output " * 9 + "\n")
    lines = table_lines(rows)
    assert "20 of 24 finished" in lines[0]
    assert all(word in lines[4] for word in ("running", "1:01", "seed 21", "a long"))
    assert all(f"config.yaml seed {seed} " in "\n".join(lines) for seed in range(24))


class InterruptedExecutor(LocalExecutor):
    """Ctrl-C comes when a job has just been started."""

    def submit(self, words, folder):
        started = super().submit(words, folder)
        signal.raise_signal(signal.SIGINT)
        return started


def test_ctrl_c_while_a_job_is_being_started_stops_it_and_starts_no_other(queue, config):
    config.write_text("DO: wait\n")
    jobs = queue(seeds=[0, 1])
    assert run_queue(jobs, InterruptedExecutor(), parallel=2) == 130
    assert [job.state for job in jobs] == ["killed", "waiting"]


def test_a_launch_that_is_stopped_while_python_starts_was_killed(monkeypatch, tmp_path):
    stop = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "sitecustomize.py").write_text(stop)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = LaunchProcess(["--help"]).wait()
    assert (outcome.code, "run the same command again" in outcome.message) == (130, True), outcome


def test_a_narrow_table_says_in_full_why_a_job_waits_in_a_cluster(tmp_path):
    row = QueueRow(f"{'0' * 12} config.yaml seed 1", RunDir(tmp_path))
    row.note = "Slurm job 7: its partition is down (PartitionDown)"
    row.run.log_file.write_text("a line of the attempt that was preempted\n")
    cells = [line.split("│")[4].strip() for line in table_lines([row]) if "│" in line]
    assert " ".join(cells) == row.note


def test_a_narrow_terminal_keeps_the_state_and_the_seed_of_each_job(tmp_path):
    title = "0123456789ab a_rather_long_name_of_a_config_for_an_experiment.yaml seed 12"
    row = QueueRow(title, RunDir(tmp_path), "finished before", 3600.0)
    cells = [line.split("│")[1:4] for line in table_lines([row]) if "│" in line]
    state, time, job = ("".join(column).split() for column in zip(*cells, strict=True))
    assert (state, time) == (["finished", "before"], ["60:00"])
    assert "".join(job) == title.replace(" ", "")


def test_a_script_that_does_not_know_the_seeds_key_is_told_of_the_option(command, tmp_path):
    parsing = "import argparse\nparser = argparse.ArgumentParser()\n"
    files = {"fit.py": f"{parsing}parser.parse_args()\n", "crash.py": "raise SystemExit(3)\n"}
    commit_files(tmp_path / "code", files)
    words = ["run", "--repo", "code", "--commit", "HEAD", "--seeds", "0:2", "--module"]
    asked = "--seeds: give --seed-key with the script's name for its seed, such as seed for --seed"
    assert asked in command(*words, "fit.py", code=2).stderr  # before any job
    words[1:1] = ["--seed-key", "rng"]
    said = command(*words, "fit.py", code=1).stderr
    assert said.count("does the script call its seed rng? --seed-key NAME gives it by") == 1
    assert "--seed-key" not in command(*words, "crash.py", code=1).stderr


def test_seeds_that_change_nothing_are_named(command, tmp_path):
    printing = "import sys\nprint('score', len(sys.argv[1]))\n"
    commit_files(tmp_path / "code", {"fixed.py": "print('score 0.5')\n", "fit.py": printing})
    words = ["run", "--repo", "code", "--commit", "HEAD", r"--metric-pattern=score (\S+)"]
    words += ["--seed-key", "seed", "--seeds", "9,10"]
    done = command(*words, "--module", "fixed.py")
    question = "the runs of 2 seeds have exactly the same metrics; does the script read seed?"
    assert question in done.stderr
    assert question in command(*words, "--module", "fixed.py").stderr
    assert question not in command(*words, "--module", "fit.py").stderr
