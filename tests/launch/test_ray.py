"""A real Ray cluster of three nodes on this machine; one of them dies with a job under way.

The nodes are three `ray start`, each with a home of its own for mirrors, as machines have.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from zoerefine.run_dir import RunDir

pytest.importorskip("ray", reason="Ray is not installed: pip install 'zoerefine[cluster]'")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ray_start(home, name, *words):
    """Start a node that stays in the foreground of its own session; killing that kills the node."""
    environment = os.environ | {
        "ZOEREFINE_HOME": str(home / name),
        "ZOEREFINE_TEST_NODE": name,
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "4000",
        "RAY_health_check_failure_threshold": "3",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    ray = Path(sys.executable).with_name("ray")
    size = ("--num-cpus=1", "--object-store-memory=80000000", "--block")
    return subprocess.Popen(
        [ray, "start", *words, *size, "--disable-usage-stats"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_tree(process):
    """Kill a node as a power cut does: every process of it at once."""
    listing = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True).stdout
    children = {}
    for line in listing.splitlines()[1:]:
        pid, parent = map(int, line.split())
        children.setdefault(parent, []).append(pid)
    doomed, found = [process.pid], [process.pid]
    while doomed:
        for pid in children.get(doomed.pop(), []):
            doomed.append(pid)
            found.append(pid)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The head's address, the three nodes by name, and where their homes lie."""
    tmp_path = tmp_path_factory.mktemp("nodes")
    port = free_port()
    address = f"127.0.0.1:{port}"
    ports = ("--include-dashboard=false", f"--ray-client-server-port={free_port()}")
    nodes = {"head": ray_start(tmp_path, "head", "--head", f"--port={port}", *ports)}
    try:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        watch = (
            "import ray, time; ray.init(log_to_driver=False)\n"
            "while True:\n"
            "    print(sum(node['Alive'] for node in ray.nodes()), flush=True); time.sleep(0.2)"
        )
        watcher = subprocess.Popen(
            [sys.executable, "-c", watch],
            env=os.environ | {"RAY_ADDRESS": address},
            stdout=subprocess.PIPE,
            text=True,
        )
        # One after the other; a node that a busy machine let die at its start is started again.
        for name, wanted in (("second", 2), ("third", 3)):
            for count in watcher.stdout:
                if int(count) >= wanted:
                    break
                if name not in nodes or nodes[name].poll() is not None:
                    nodes[name] = ray_start(tmp_path, name, f"--address={address}")
                assert time.monotonic() < deadline + 60, "the nodes did not come up"
        watcher.kill()
        watcher.communicate()
        yield address, nodes, tmp_path
    finally:
        for process in nodes.values():
            kill_tree(process)


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
