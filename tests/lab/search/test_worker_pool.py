"""Worker processes: several at once, killed, interrupted, suspended; each trial runs once."""

import os
import random
import re
import signal
import socket
import sqlite3
import threading
import time

import pytest

from tests.lab.search.conftest import StudyOnDisk, check_finished_study, training_runs
from tests.processes import children, end_of, ended, is_alive, kills
from zoerefine.base.errors import UserError
from zoerefine.lab.launch.queue.executor import ExecutorBusy, JobOutcome
from zoerefine.lab.search.driver import Driver
from zoerefine.lab.search.study.claims import claim_trial, complete
from zoerefine.lab.search.subject import TrialOutcome
from zoerefine.lab.search.worker_pool import LocalWorkers, MachineShares, clean_commit

KILLS = kills(1)


def logs_of(study):
    """What the workers printed."""
    return "\n".join(path.read_text() for path in (study.run.path / "workers").glob("*.log"))


def busy_workers(study):
    """The workers that run a trial now."""
    running = [one for one in study.trials() if one.state.name == "RUNNING"]
    return {one.user_attrs["worker"] for one in running if one.user_attrs.get("claim")}


def test_workers_share_the_trials_and_a_killed_one_is_replaced(
    tmp_path, gated, start_script, wait_until
):
    driver = start_script("search", *gated.words, "--workers", "2")
    wait_until(lambda: len(training_runs(tmp_path)) == 2, driver)
    first = busy_workers(StudyOnDisk(tmp_path))
    assert len(first) == 2
    os.kill(training_runs(tmp_path)[0].status().pid, signal.SIGKILL)
    wait_until(lambda: busy_workers(StudyOnDisk(tmp_path)) - first, driver)
    gated.open()
    _, errors = end_of(driver)
    assert "died with exit code 137: another is started" in errors
    study = check_finished_study(tmp_path)
    (continued,) = study.continued()
    assert "going on from step" in logs_of(study)
    assert re.search(rf"^trial {continued.number} continued by another worker: TRAIN\.LR", errors,
                     re.MULTILINE)  # fmt: skip
    printed = re.findall(r"^trial (\d+) \w+ ?\w*(.*)", errors, re.MULTILINE)
    assert {int(number) for number, _ in printed} == {0, 1, 2}
    assert all(rest.strip(": ") for _, rest in printed)  # values, figures or a reason


def test_after_ctrl_c_and_after_a_kill_the_same_command_resumes_the_study(
    tmp_path, gated, start_script, script, wait_until
):
    driver = start_script("search", *gated.words)
    wait_until(lambda: training_runs(tmp_path), driver)
    driver.send_signal(signal.SIGINT)
    _, errors = end_of(driver, 130)
    assert "run the same command again" in errors
    study = StudyOnDisk(tmp_path)
    assert study.run.status().state == "killed"
    assert [trial.state.name for trial in study.trials()][-1] == "WAITING"
    assert not study.continued()

    moments = random.Random(0)
    for kill in range(KILLS):
        driver = start_script("search", *gated.words)
        if kill == 0:
            wait_until(lambda: training_runs(tmp_path)[0].status().state == "running", driver)
            gated.open()
        else:
            wait_until(lambda d=driver: children(d.pid), driver)
            time.sleep(moments.uniform(0, 5))
        workers = children(driver.pid)
        driver.send_signal(signal.SIGKILL)
        ended(driver, "search")
        wait_until(lambda w=workers: not any(map(is_alive, w)))

    script("search", *gated.words)
    check_finished_study(tmp_path)


class InterruptedWorkers(LocalWorkers):
    """Ctrl-C comes when a worker has just been started."""

    def submit(self, name, number, words):
        ticket = super().submit(name, number, words)
        signal.raise_signal(signal.SIGINT)
        return ticket


def test_ctrl_c_while_a_worker_is_being_started_stops_it_and_starts_no_other(open_study):
    study = open_study("{TRAIN: {LR: [0.1, 0.2]}}", "STUDY.WORKERS", 2)
    study.subject.save(study.run)
    driver = Driver(study, InterruptedWorkers(study.run, MachineShares(2, [])))
    with pytest.raises(KeyboardInterrupt):
        driver.drive()
    assert len([*study.run.path.glob("workers/*.log")]) == 1
    assert study.trials() == []


class WorkersOfAnEarlierDriver:
    """The first worker knows fewer trials: it ends one, and then finds nothing left to do."""

    keeps_jobs = True

    def __init__(self, study, trials):
        self.study, self.trials = study, iter(trials)

    def submit(self, name, number, words):
        for _ in range(next(self.trials)):
            complete(self.study, claim_trial(self.study, name), TrialOutcome({"abs_rel": 0.5}))
        return name

    def poll(self, ticket):
        return JobOutcome(0, "")


def test_a_worker_of_an_earlier_driver_does_not_end_a_study_with_more_trials(open_study):
    study = open_study("{TRAIN: {LR: {low: 0.1, high: 0.2}}}", "STUDY.TRIALS", 3)
    workers = WorkersOfAnEarlierDriver(study, [1, 2])
    Driver(study, workers).drive()
    assert [trial.state.name for trial in study.trials()] == ["COMPLETE"] * 3


class BusyCluster(LocalWorkers):
    """Takes no worker when it is asked for the first time."""

    asked = 0

    def submit(self, name, number, words):
        self.asked += 1
        if self.asked == 1:
            raise ExecutorBusy
        return super().submit(name, number, words)


def test_a_worker_that_a_cluster_takes_later_is_started_then(open_study):
    study = open_study("{TRAIN: {LR: [0.1, 0.2]}}", "STUDY.WORKERS", 1, "STUDY.TRIALS", 1)
    study.subject.save(study.run)
    workers = BusyCluster(study.run, MachineShares(1, []))
    Driver(study, workers).drive()
    assert (workers.asked, [trial.state.name for trial in study.trials()]) == (2, ["COMPLETE"])


class RefusingCluster(LocalWorkers):
    """Refuses workers but for some of its slots."""

    def __init__(self, run, taken):
        super().__init__(run, MachineShares(2, []))
        self.taken = taken

    def submit(self, name, number, words):
        if number not in self.taken:
            raise UserError("no such partition")
        return super().submit(name, number, words)


def test_a_refused_worker_ends_the_search_only_where_no_other_runs(open_study, capfd):
    study = open_study("{TRAIN: {LR: [0.1, 0.2]}}", "STUDY.WORKERS", 2, "STUDY.TRIALS", 1)
    study.subject.save(study.run)
    with pytest.raises(UserError, match="no such partition"):
        Driver(study, RefusingCluster(study.run, [1])).drive()
    assert study.trials() == []
    Driver(study, RefusingCluster(study.run, [0])).drive()
    assert "warning: a worker cannot be started: no such partition" in capfd.readouterr().err
    assert [trial.state.name for trial in study.trials()] == ["COMPLETE"]


def stop_between_writes(process, database):
    """Suspend a process while it does not hold SQLite's lock, which would block all others."""
    for _ in range(50):
        os.kill(process, signal.SIGSTOP)
        connection = sqlite3.connect(database, timeout=2)
        try:
            connection.execute("begin immediate").connection.rollback()
            return
        except sqlite3.OperationalError:  # locked
            os.kill(process, signal.SIGCONT)
            time.sleep(0.1)
        finally:
            connection.close()
    raise AssertionError(f"{database} is always locked")


@pytest.mark.skipif(KILLS < 2, reason="set ZOEREFINE_TEST_KILLS=2 or more to run it")
def test_a_suspended_worker_loses_its_trial_to_another(tmp_path, gated, start_script, wait_until):
    words = (*gated.words, "STUDY.HEARTBEAT_S", "1", "--workers", "2", "--trials", "2")
    driver = start_script("search", *words)
    wait_until(lambda: len(training_runs(tmp_path)) == 2, driver)
    suspended = training_runs(tmp_path)[0].status().pid
    stop_between_writes(suspended, tmp_path / "runs" / "tiny" / "study" / "study.db")
    gated.open()
    study = StudyOnDisk(tmp_path)
    wait_until(study.continued, driver)
    os.kill(suspended, signal.SIGCONT)
    end_of(driver)
    check_finished_study(tmp_path, trials=2)
    assert "was taken over by another worker" in logs_of(study)


def test_no_trial_begins_after_the_timeout_and_workers_that_join_run_them(
    tmp_path, tiny, script, start_script
):
    tiny.write_text(tiny.read_text() + "SEARCH: {TRAIN: {LR: {low: 0.001, high: 0.002}}}\n")
    words = ("--trials", 2, "--timeout", "0.001")
    done = script("search", "--config", tiny, *words, "TRAIN.EPOCHS", "1", code=2)
    assert "no trial was completed" in done.stderr
    assert StudyOnDisk(tmp_path).trials() == []
    run = tmp_path / "runs" / "tiny" / "study"
    joined = [start_script("search", "--join", run) for _ in range(2)]
    for process in joined:
        end_of(process)
    study = check_finished_study(tmp_path, trials=2)
    assert not study.continued()
    assert all(t.user_attrs["worker"].startswith("joined-") for t in study.trials())


def test_a_cluster_refuses_a_tree_with_uncommitted_changes(tree, monkeypatch):
    monkeypatch.setattr("zoerefine.lab.search.worker_pool.OWN_FOLDER", tree)
    assert len(clean_commit()) == 40
    with open(tree / "zoerefine" / "errors.py", "a") as file:
        file.write("# changed\n")
    with pytest.raises(UserError, match="commit your changes first"):
        clean_commit()


def test_a_study_says_which_stopped_process_it_waits_for(tmp_path, gated, start_script, wait_until):
    words = ("search", *gated.words, "--trials", "1")
    driver = start_script(*words)
    wait_until(lambda: training_runs(tmp_path), driver)
    stopped = training_runs(tmp_path)[0].status().pid
    stop_between_writes(stopped, tmp_path / "runs" / "tiny" / "study" / "study.db")
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    again = start_script(*words)
    try:
        lines = iter(again.stderr.readline, "")
        said = next(line for line in lines if str(stopped) in line)
        assert f"process {stopped} on {socket.gethostname()}, which is stopped" in said
        assert f"kill -9 {stopped}" in said
        assert "trial 0 cannot go on yet" in said or "waiting for the lock of study" in said
    finally:
        os.kill(stopped, signal.SIGCONT)  # it has a SIGTERM to obey
        gated.open()
    end_of(again)
    check_finished_study(tmp_path, trials=1)


def test_waiting_for_a_studys_lock_names_its_holder(open_study, capsys, monkeypatch, wait_until):
    monkeypatch.setattr("zoerefine.lab.search.study.storage.SAID_AFTER_S", 0.1)
    study = open_study("{TRAIN: {LR: [0.1]}}")
    said = ""

    def has_said():
        nonlocal said
        said += capsys.readouterr().err
        return said.endswith("\n")

    with study.locked():
        waiting = threading.Thread(target=lambda: study.locked().__enter__(), daemon=True)
        waiting.start()
        wait_until(has_said)
    waiting.join()
    assert "waiting for the lock of study tiny, which is held by process" in said
    assert f"process {os.getpid()} on {socket.gethostname()}" in said
