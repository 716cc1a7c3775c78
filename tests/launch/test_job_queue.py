"""Queues: the product, so many at a time, nothing twice, and nothing lost when stopped."""

import signal
import time

import pytest

from zoerefine.launch.executor import open_executor
from zoerefine.launch.job_queue import make_queue, run_queue
from zoerefine.launch.launch_plan import Job
from zoerefine.run_dir import RunDir


@pytest.fixture
def queue(repository, home, tmp_path, config, monkeypatch):
    """Make a queue of the repository's job."""
    monkeypatch.chdir(tmp_path)

    def make(commits=None, configs=None, seeds=(), **options):
        job = Job(str(repository.folder), "main", config, module="job.py", **options)
        commits = commits or [repository.first]
        return make_queue(job, commits, configs or [config], seeds, "SEED", tmp_path / "runs", home)

    return make


def test_the_product_runs_and_a_second_time_nothing_does(queue, repository, tmp_path):
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


def test_the_same_job_twice_in_a_queue_is_one(queue, repository):
    assert len(queue(commits=["main", repository.second, repository.second[:10]])) == 1


def test_a_failure_is_told_and_the_others_go_on(queue, tmp_path, capfd):
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    bad.write_text("fail: 1\n")
    good.write_text("fine: 1\n")
    with open_executor("local") as executor:
        jobs = queue(configs=[bad, good])
        assert run_queue(jobs, executor, parallel=1) == 1
    assert [job.state for job in jobs] == ["failed", "finished"]
    assert "it went wrong" in capfd.readouterr().err


def test_what_is_wrong_before_a_job_starts_is_told(queue, capfd):
    with open_executor("local") as executor:
        jobs = queue()
        jobs[0].words = tuple("absent.py" if w == "job.py" else w for w in jobs[0].words)
        assert run_queue(jobs, executor, parallel=1) == 1
    assert "the commit has no script absent.py" in capfd.readouterr().err


def test_ctrl_c_stops_every_job_with_a_checkpoint_and_the_same_command_goes_on(
    launch, config, tmp_path
):
    config.write_text("steps: 1\n")
    words = ("--seeds", "0:3", "--parallel", "2", "--runs", tmp_path / "runs")
    running = launch(*words, background=True)
    runs = tmp_path / "runs" / "job"
    while len([path for path in runs.glob("*-*/steps.txt") if path.exists()]) < 2:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130
    states = [RunDir(path).status().state for path in runs.glob("*-*") if path.name != "latest"]
    assert states == ["killed", "killed"]
    done = launch(*words)
    assert done.returncode == 0, done.stderr
    for path in runs.glob("*-*/steps.txt"):
        assert [line.split()[0] for line in path.read_text().splitlines()] == [
            str(step) for step in range(12)
        ]
    assert len(list(runs.glob("*-*/results.json"))) == 3


def test_options_of_a_queue_that_make_no_sense_are_refused(launch):
    for words, message in [
        (("--seeds", "5:5"), "invalid"),
        (("--seeds", "0:2", "--parallel", "0"), "invalid"),
        (("--seeds", "0:2", "--allow-dirty"), "commit the changes first"),
        (("--executor", "ray"), "RAY_ADDRESS"),
    ]:
        done = launch(*words, env={"RAY_ADDRESS": ""})
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
