"""Real Ray clusters for tests: nodes on this machine, each with a home of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from tests.lab.search.gate import GATE
from tests.ports import reserved_port
from tests.processes import descendants

CHECKOUT = Path(__file__).resolve().parents[1]
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: pip install 'zoerefine[cluster]'"
)


def ray_start(home, name, *words):
    """Start a node in the foreground of its own session; killing that process ends the node.

    Gated networks of trials wait there for the file `gate` in `home`.
    """
    environment = os.environ | {
        "ZOEREFINE_HOME": str(home / name),
        "ZOEREFINE_TEST_NODE": name,
        GATE: str(home / "gate"),
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")]),
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "20000",
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
    """Kill all processes of a node at once, as a power cut does: none sees another one's end."""
    pids = descendants(process.pid)
    for number, pid in product((signal.SIGSTOP, signal.SIGKILL), pids):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    process.wait()


# Ends when so many nodes are alive.
WATCHER = """
import ray, sys, time
ray.init(log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    time.sleep(0.1)
"""


@contextmanager
def ray_nodes(tmp_path, *others):
    """The head's address, its node and the others by name, and the folder of their homes."""
    # A token in the home folder of who runs the tests would keep the nodes apart.
    os.environ["RAY_AUTH_MODE"] = "disabled"  # also for the commands that a test starts
    with reserved_port() as port, reserved_port() as client_port:
        yield from start_nodes(tmp_path, port, client_port, others)


def start_nodes(tmp_path, port, client_port, others):
    address = f"127.0.0.1:{port}"
    ports = ("--include-dashboard=false", f"--ray-client-server-port={client_port}")
    nodes = {}

    def start(name, *words):
        # A node that a busy machine let die at its start is started again.
        if name not in nodes or nodes[name].poll() is not None:
            nodes[name] = ray_start(tmp_path, name, *words)

    watcher = None
    try:
        deadline = time.monotonic() + 300
        while watcher is None or watcher.poll() != 0:
            assert time.monotonic() < deadline, "the nodes did not start"
            start("head", "--head", f"--port={port}", *ports)
            if accepts_connections(port):
                for name in others:
                    start(name, f"--address={address}")
                if watcher is None or watcher.poll() is not None:
                    watcher = start_watcher(address, 1 + len(others))
            time.sleep(0.1)
        yield address, nodes, tmp_path
    finally:
        if watcher is not None:
            watcher.kill()
            watcher.wait()
        for process in nodes.values():
            kill_tree(process)


def accepts_connections(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_watcher(address, nodes):
    return subprocess.Popen(
        [sys.executable, "-c", WATCHER, str(nodes)],
        env=os.environ | {"RAY_ADDRESS": address},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
