"""A study on a real Slurm goes on without its driver, and the next driver finds its workers.

A worker that Slurm queues again puts its trial back, which counts as no death of a worker. Each
trial is trained by two processes.
"""

import os
import signal
import subprocess
import sys

from tests.lab.search.conftest import check_finished_study, training_runs
from tests.processes import end_of
from tests.slurm import needs_slurm


@needs_slurm
def test_after_a_logout_the_same_search_finds_its_workers(slurm, tree, gated, tmp_path, wait_until):
    command = [sys.executable, tree / "platform" / "search.py", *gated.words, "--workers", "2"]
    command += ["--executor", "slurm", "--gpus", "0", "STUDY.TRIALS", "2", "STUDY.DEVICES", "2"]
    settings = {
        "cwd": tmp_path, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "text": True,
        "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
    }  # fmt: skip

    driver = subprocess.Popen(command, **settings)
    try:
        wait_until(lambda: len(training_runs(tmp_path)) == 2, driver, seconds=240)
        driver.send_signal(signal.SIGHUP)
        end_of(driver, 130)
        jobs = slurm.run("squeue", "--noheader", "--format=%i %T").split()
        assert jobs.count("RUNNING") == 2
        slurm.run("scontrol", "requeue", jobs[0])  # as a preemption does
        gated.open()
        driver = subprocess.Popen(command, **settings)
        _, errors = driver.communicate(timeout=300)
    finally:
        driver.kill()
    assert driver.returncode == 0, errors
    assert not check_finished_study(tmp_path, trials=2).continued()
    submitted = slurm.run("squeue", "--noheader", "--states=all", "--format=%i").split()
    assert len(submitted) == 2  # by the first driver; Slurm still lists those that ended
