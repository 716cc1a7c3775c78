"""A study on a real Ray cluster of three nodes, one of which dies. Each trial is trained by two
processes."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.cluster import kill_tree
from tests.lab.search.conftest import check_finished_study, training_runs

pytest.importorskip("ray", reason="Ray is not installed: pip install 'zoerefine[cluster]'")


def test_a_node_dies_and_the_study_finishes(cluster, tree, gated, tmp_path, wait_until):
    address, nodes, homes = cluster
    command = [sys.executable, tree / "platform" / "search.py", *gated.words, "--workers", "3"]
    command += ["--executor", "ray", "--cpus", "1", "--gpus", "0"]
    driver = subprocess.Popen(
        [*command, "STUDY.TRIALS", "4", "STUDY.DEVICES", "2", "STUDY.HEARTBEAT_S", "5"],
        cwd=tmp_path, text=True,
        env=os.environ | {"RAY_ADDRESS": address, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip

    try:
        wait_until(lambda: len(training_runs(tmp_path)) >= 3, driver, seconds=240)
        kill_tree(nodes["third"])
        (homes / "gate").touch()
        _, errors = driver.communicate(timeout=300)
    finally:
        driver.kill()
    assert driver.returncode == 0, errors
    study = check_finished_study(tmp_path, trials=4)
    assert study.continued()
    shutil.rmtree(tmp_path / "caches")
