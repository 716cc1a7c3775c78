"""A real Ray cluster of three nodes on this machine; one of them dies with a job under way.

The nodes are three `ray start`, each with a home of its own for mirrors, as machines have.
"""

import json
import signal
import time

import pytest

from tests.cluster import kill_tree
from zoerefine.run_dir import RunDir

pytest.importorskip("ray", reason="Ray is not installed: pip install 'zoerefine[cluster]'")


def test_a_node_dies_and_its_job_goes_on_elsewhere(cluster, launch, config, repository, tmp_path):
    address, nodes, homes = cluster
    config.write_text("slow steps: 1\n")
    words = ("--seeds", "0:3", "--parallel", "3", "--runs", tmp_path / "runs")
    words += ("--executor", "ray")
    running = launch(*words, env={"RAY_ADDRESS": address}, background=True)
    runs = tmp_path / "runs" / "job"

    def steps(path):
        return [line.split() for line in path.read_text().splitlines()]

    victim = None
    deadline = time.monotonic() + 60
    while victim is None and time.monotonic() < deadline:
        assert running.poll() is None, running.communicate()
        for path in runs.glob("*-*/steps.txt"):
            if len(rows := steps(path)) >= 2 and rows[-1][1] != "head":
                victim = path, rows[-1][1]
        time.sleep(0.05)
    assert victim is not None, "no job ran outside of the head"
    kill_tree(nodes[victim[1]])
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    rows = steps(victim[0])
    assert [row[0] for row in rows] == [str(step) for step in range(12)]  # none twice, none lost
    assert len({row[1] for row in rows}) == 2  # begun on one node, ended on another
    assert len(list(runs.glob("*-*/results.json"))) == 3
    for path in runs.glob("*-*/provenance.json"):
        assert json.loads(path.read_text())["commit"] == repository.first
    mirrors = {path.parts[-3] for path in homes.glob("*/mirrors/*.git")}
    assert len(mirrors & {"head", "second", "third"}) >= 2  # each node has its own


def test_ctrl_c_reaches_a_job_on_the_cluster(cluster, launch, config, tmp_path):
    config.write_text("wait: 1\n")
    words = ("--executor", "ray", "--runs", tmp_path / "runs")
    running = launch(*words, env={"RAY_ADDRESS": cluster[0]}, background=True)

    def said(text):
        return any(text in path.read_text() for path in tmp_path.glob("runs/job/*-*/log.txt"))

    deadline = time.monotonic() + 60
    while not said("waiting") and time.monotonic() < deadline:
        assert running.poll() is None, running.communicate()
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert said("stopped with a checkpoint")
    (run,) = (RunDir(path) for path in tmp_path.glob("runs/job/*-*"))
    assert run.status().state == "killed"
