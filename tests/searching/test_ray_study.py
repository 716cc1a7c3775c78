"""A study on a real Ray cluster of three nodes, one of which dies."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.cluster import kill_tree
from tests.searching.conftest import check_finished_study, training_runs

pytest.importorskip("ray", reason="Ray is not installed: pip install 'zoerefine[cluster]'")


def test_a_node_dies_and_the_study_finishes(cluster, tree, slow, tmp_path, wait_until):
    address, nodes, _ = cluster
    command = [sys.executable, tree / "platform" / "search.py", *slow, "--workers", "3"]
    driver = subprocess.Popen(
        [*command, "--executor", "ray", "STUDY.TRIALS", "4"], cwd=tmp_path, text=True,
        env=os.environ | {"RAY_ADDRESS": address, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip

    try:
        wait_until(lambda: len(training_runs(tmp_path)) >= 3, driver, seconds=240)
        kill_tree(nodes["third"])
        _, errors = driver.communicate(timeout=300)
    finally:
        driver.kill()
    assert driver.returncode == 0, errors
    study = check_finished_study(tmp_path, trials=4)
    assert study.continued()
    shutil.rmtree(tmp_path / "caches")
