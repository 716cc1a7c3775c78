"""Workers: several at once, killed, stopped, taken for dead; no trial lost, none twice."""

import os
import random
import signal
import sqlite3
import time

from tests.search.conftest import Made, alive, check_whole, children
from zoerefine.config import load_config
from zoerefine.search.study import Study, counted

KILLS = int(os.environ.get("ZOEREFINE_TEST_KILLS", "3"))


def training(tmp_path, count=1):
    """Whether so many trials have written a checkpoint."""
    found = tmp_path.glob("runs/tiny/study/trials/*/checkpoints/step-*.pt")
    return len({path.parent for path in found}) >= count


def test_workers_share_the_trials_and_one_that_is_killed_is_replaced(
    tmp_path, slow, start_script, wait_until
):
    driver = start_script("search", *slow, "--workers", "2")
    wait_until(lambda: training(tmp_path, 2), driver)
    victim = children(driver.pid)[0]
    os.kill(victim, signal.SIGKILL)
    _, errors = driver.communicate(timeout=180)
    assert driver.returncode == 0, errors
    assert "died with exit code 137: starting another" in errors
    study = check_whole(tmp_path)
    everything = study.optuna.get_trials()
    continued = [t for t in everything if "continues" in t.user_attrs]
    assert len(continued) == 1
    assert len({t.user_attrs["worker"] for t in study.trials()}) >= 2
    logs = [path.read_text() for path in (study.run.path / "workers").glob("*.log")]
    assert any("going on from step" in text for text in logs)


def test_a_driver_that_is_killed_leaves_no_worker_and_the_same_command_goes_on(
    tmp_path, slow, start_script, script, wait_until
):
    moments = random.Random(0)
    for _ in range(KILLS):
        driver = start_script("search", *slow)
        wait_until(lambda d=driver: children(d.pid), driver)
        time.sleep(moments.uniform(0, 5))
        workers = children(driver.pid)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        end = time.monotonic() + 60
        while any(map(alive, workers)):
            assert time.monotonic() < end
            time.sleep(0.05)
    done = script("search", *slow)
    assert done.returncode == 0, done.stderr
    check_whole(tmp_path)


def test_ctrl_c_stops_with_a_checkpoint_and_nothing_is_lost(
    tmp_path, slow, start_script, script, wait_until
):
    driver = start_script("search", *slow)
    wait_until(lambda: training(tmp_path), driver)
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 130, errors
    assert "run the same command again" in errors
    study = Made(tmp_path)
    assert study.run.status().state == "killed"
    assert [t.state.name for t in study.trials()][-1] == "WAITING"
    assert all(t.user_attrs.get("deaths", 0) == 0 for t in study.trials())
    done = script("search", *slow)
    assert done.returncode == 0, done.stderr
    check_whole(tmp_path)


def stop_between_writes(process, database):
    """Stop a process while it does not hold SQLite's lock, which it would keep from all others."""
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


def test_a_worker_taken_for_dead_leaves_its_trial_to_another(
    tmp_path, slow, start_script, wait_until
):
    driver = start_script("search", *slow, "--workers", "2")
    wait_until(lambda: training(tmp_path, 2), driver)
    sleeper = children(driver.pid)[0]
    stop_between_writes(sleeper, tmp_path / "runs" / "tiny" / "study" / "study.db")
    study = Made(tmp_path)
    wait_until(lambda: any("continues" in t.user_attrs for t in study.optuna.get_trials()), driver)
    os.kill(sleeper, signal.SIGCONT)
    _, errors = driver.communicate(timeout=180)
    assert driver.returncode == 0, errors
    check_whole(tmp_path)
    logs = [path.read_text() for path in (study.run.path / "workers").glob("*.log")]
    assert any("was taken over by another worker" in text for text in logs)


def test_a_worker_joins_from_elsewhere(tmp_path, slow, start_script, script, wait_until):
    driver = start_script("search", *slow, "--trials", "5")
    wait_until(lambda: training(tmp_path), driver)
    joined = script("search", "--join", tmp_path / "runs" / "tiny" / "study", "--name", "guest")
    assert joined.returncode == 0, joined.stderr
    _, errors = driver.communicate(timeout=180)
    assert driver.returncode == 0, errors
    study = check_whole(tmp_path, trials=5)
    assert "guest" in {t.user_attrs["worker"] for t in study.trials()}


def test_a_trial_whose_workers_keep_dying_is_given_up(searched):
    study = searched("{TRAIN: {LR: {low: 0.001, high: 0.01}}}", "STUDY.TRIALS", 1)
    more = load_config(study.run.config_file, ["STUDY.TRIALS", "2"])
    again = Study(more, study.run, "doomed")
    claims = 0
    while again.claim() is not None:
        claims += 1
        again.release("doomed")
    assert claims == 1 + more.STUDY.RETRIES
    last = counted(again.optuna.get_trials())[-1]
    assert last.state.name == "FAIL"
    assert len(again.trials()) == 2


def test_no_trial_begins_after_the_timeout(tmp_path, slow, script):
    done = script("search", *slow, "--timeout", "0.001")
    assert done.returncode == 2
    assert "no trial was completed" in done.stderr
    assert Made(tmp_path).trials() == []
