"""Searching scripts whose processes are killed: the trial goes on, and none outlives a kill."""

import os
import signal
from contextlib import suppress

import pytest

from tests.foreign import Gate
from tests.lab.search.conftest import search_words, study_on_disk
from tests.processes import end_of, is_alive
from zoerefine.lab.search.study.claims import requeue_trials_of
from zoerefine.lab.search.study.trials import reason_of
from zoerefine.lab.search.worker import run_worker

pytestmark = pytest.mark.usefixtures("own_folder")
MARKED = """
import os, time
from pathlib import Path

rank = os.environ.get("RANK", "0")
marks = Path(os.environ["TEST_GATE"]).parent
(marks / f"pid-{rank}").write_text(str(os.getpid()))
"""
OTHER_RANKS_WAIT = """
while rank != "0" and not Path(os.environ["TEST_GATE"]).exists():
    time.sleep(0.02)
if rank != "0":
    raise SystemExit
"""
DEAF = """
import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, lambda *_: (marks / f"asked-{rank}").touch())
"""


@pytest.fixture
def marked_search(foreign_repository, tmp_path, start_script, monkeypatch):
    """Start a search of one trial, whose processes wait at a gate."""
    repository, gate = foreign_repository("plain_prints"), Gate(tmp_path, monkeypatch)

    def start(processes, more=""):
        repository.edit("main.py", lambda text: MARKED + more + OTHER_RANKS_WAIT + text)
        words = ("--grid", "--processes", processes, *repository.set(epochs=2))
        return start_script("search", *search_words(repository, *words, space="[0.1]"))

    start.gate = gate
    return start


def marked_pids(tmp_path, count):
    """The processes of the trial; none before all of them have started."""
    files = [tmp_path / f"pid-{rank}" for rank in range(count)]
    texts = [file.read_text() if file.exists() else "" for file in files]
    return [int(text) for text in texts] if all(texts) else []


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.depth)])
def test_a_trial_of_which_a_process_is_killed_goes_on(
    marked_search, tmp_path, wait_until, processes
):
    driver = marked_search(processes)
    wait_until(lambda: marked_pids(tmp_path, processes) and marked_search.gate.waiting(), driver)
    before = marked_pids(tmp_path, processes)
    os.kill(before[-1], signal.SIGKILL)
    wait_until(lambda: (marked_pids(tmp_path, processes) or before)[-1] != before[-1], driver)
    marked_search.gate.open()
    _, errors = end_of(driver)
    assert "died with exit code 137: another is started" in errors
    (trial,) = study_on_disk(tmp_path)[1]
    assert trial.state.name == "COMPLETE"
    assert len(trial.user_attrs["lost_claims"]) == 1


def test_a_trial_whose_script_is_killed_each_time_fails(foreign_repository, open_script_study):
    repository = foreign_repository("plain_prints")
    killed = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    repository.change({"main.py": killed})
    study = open_script_study(repository, "--grid", "STUDY.RETRIES", 1, space="[0.1]")
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            run_worker(study.run, "here")
        assert ended.value.code == 137  # as if the worker had been killed
        assert requeue_trials_of(study, "here")
    (trial,) = study.trials()
    assert trial.state.name == "FAIL"
    assert reason_of(trial) == "its worker or a process of it died 2 times"


@pytest.mark.depth  # torchrun
def test_a_second_ctrl_c_kills_the_processes_of_a_trial(marked_search, tmp_path, wait_until):
    driver = marked_search(2, DEAF)
    wait_until(lambda: marked_pids(tmp_path, 2) and marked_search.gate.waiting(), driver)
    pids = marked_pids(tmp_path, 2)
    try:
        driver.send_signal(signal.SIGINT)
        wait_until(lambda: len([*tmp_path.glob("asked-?")]) == 2, driver)
        driver.send_signal(signal.SIGINT)
        end_of(driver, 130)
        assert not any(map(is_alive, pids))
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
