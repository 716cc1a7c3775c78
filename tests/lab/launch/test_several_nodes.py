"""--nodes: torchrun starts one job on several nodes of a real Slurm and of a real Ray."""

import json
import os
import signal
import socket

import pytest

from tests.cluster import kill_tree, needs_ray
from tests.processes import end_of
from tests.slurm import needs_slurm
from zoerefine.lab.launch.process.child import NodePlace
from zoerefine.lab.launch.process.output import OutputLog
from zoerefine.lab.launch.queue.slurm import node_job
from zoerefine.lab.launch.queue.slurm.submission import SlurmFiles

# Twenty steps of two processes together, with a checkpoint after each. After five steps they wait
# for a file.
JOB = """
import argparse, json, os, signal, sys, time
from pathlib import Path
import torch, torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--config")
config = json.loads(Path(parser.parse_args().config).read_text())
run, rank = Path(os.environ["ZOEREFINE_RUN_FOLDER"]), int(os.environ["RANK"])
stops = []
signal.signal(signal.SIGINT, lambda *_: stops.append(1))
(run / f"node-of-{rank}").write_text(
    os.environ.get("SLURMD_NODENAME") or os.environ["ZOEREFINE_TEST_NODE"])
dist.init_process_group("gloo")
file = run / "state.json"
state = json.loads(file.read_text()) if file.exists() else {"step": 0, "sum": 0.0, "starts": 0}
state["starts"] += 1
print("started at step", state["step"], flush=True)

def save():
    if rank == 0:
        Path(f"{file}.new").write_text(json.dumps(state))
        os.replace(f"{file}.new", file)

while state["step"] < 20:
    if config["fails"] and rank == 1 and state["step"] == 3:
        sys.exit("rank 1 went wrong")
    total = torch.tensor([len(stops), Path(config["gate"]).exists(), rank + state["step"] / 8])
    dist.all_reduce(total)
    if total[0]:
        sys.exit(130)
    if state["step"] == 5 and total[1] < dist.get_world_size():
        save()
        (run / "waits").touch()
        time.sleep(0.02)
        continue
    state["sum"] += total[2].item()
    state["step"] += 1
    save()
if rank == 0:
    (run / "results.json").write_text(json.dumps({"sum": state["sum"]}))
dist.destroy_process_group()
"""
EXPECTED = 20 + 2 / 8 * sum(range(20))
ON_TWO = ("--nodes", "2", "--processes", "2")


@pytest.fixture(
    params=[pytest.param("slurm", marks=needs_slurm), pytest.param("ray", marks=needs_ray)]
)
def two_nodes(request, monkeypatch, launch, repository, config, tmp_path):
    """Launch this job on two nodes: two_nodes(fails=...) -> the command in the background."""
    if request.param == "slurm":
        cluster = request.getfixturevalue("slurm")
    else:
        cluster = request.getfixturevalue("cluster")
        monkeypatch.setenv("RAY_ADDRESS", cluster[0])
    (repository.folder / "job.py").write_text(JOB)
    repository.git("commit", "--quiet", "--all", "--message", "steps")
    commit = repository.git("rev-parse", "HEAD")

    def start(fails=False):
        config.write_text(json.dumps({"gate": str(tmp_path / "gate"), "fails": fails}))
        words = ("--executor", request.param, *ON_TWO)
        return launch(*words, commit=commit, background=True)

    start.cluster, start.open_gate = cluster, (tmp_path / "gate").touch
    return start


@pytest.fixture
def until_it_waits(only_run, wait_until):
    """Wait until the processes wait; returns the run."""

    def wait(running):
        wait_until(lambda: (only_run().path / "waits").exists(), running)
        return only_run()

    return wait


def check_end(running, run, starts):
    """The launch has succeeded; so often was the job started."""
    end_of(running)
    assert run.status().state == "finished"
    assert json.loads(run.results_file.read_text()) == {"sum": EXPECTED}
    assert json.loads((run.path / "state.json").read_text())["starts"] == starts
    assert not (run.path / ".nodes").exists()
    for log in (run.log_file, run.path / "node-1/log.txt"):
        assert "started at step" in log.read_text()


def node_of(run, rank):
    return (run.path / f"node-of-{rank}").read_text()


def test_a_stopped_job_of_two_nodes_goes_on_with_the_same_command(two_nodes, until_it_waits):
    running = two_nodes()
    run = until_it_waits(running)
    running.send_signal(signal.SIGINT)
    end_of(running, 130)
    assert run.status().state == "killed"
    assert node_of(run, 0) != node_of(run, 1)
    two_nodes.open_gate()
    check_end(two_nodes(), run, starts=2)
    facts = run.read_json(run.provenance_file)
    assert (facts["nodes"], facts["processes"], facts["attempt"]) == (2, 2, 2)


def test_a_process_that_fails_on_another_node_fails_the_job_with_its_message(two_nodes, only_run):
    running = two_nodes(fails=True)
    _, errors = end_of(running, 1)
    run = only_run()
    assert run.status().state == "failed"
    assert run.status().reason == f"node 1 ({socket.gethostname()}): rank 1 went wrong"
    assert "rank 1 went wrong" in errors
    outputs = run.read_json(run.provenance_file)["outputs"]
    assert not [name for name in outputs if ".nodes" in name]  # the nodes' own messages


def test_when_a_node_dies_the_job_goes_on_at_others(two_nodes, until_it_waits, request):
    running = two_nodes()
    run = until_it_waits(running)
    node = next(node for rank in (1, 0) if (node := node_of(run, rank)) != "head")
    if "ray" in request.node.callspec.id:  # the last test of this cluster: it leaves two nodes
        kill_tree(two_nodes.cluster[1][node])
        two_nodes.open_gate()
        check_end(running, run, starts=2)
        return
    two_nodes.cluster.kill_node(node)
    two_nodes.open_gate()
    two_nodes.cluster.start_node(node)  # before Slurm notices
    check_end(running, run, starts=2)


@pytest.mark.parametrize(("code", "stops"), [(0, 0), (1, 2)])
def test_node_0_goes_on_alone_unless_the_others_have_failed(tmp_path, monkeypatch, code, stops):
    srun = tmp_path / "srun"
    srun.write_text(f"#!/bin/sh\nexit {code}\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    others = node_job.OtherNodes(SlurmFiles(tmp_path), NodePlace("a", 0, 2))
    others.wait()
    monkeypatch.setattr(node_job, "ENDING_S", 1e-9)
    others.wanted_stops()  # the time runs from here
    assert others.wanted_stops() == stops


LOST = "[rank0]: RuntimeError: [gloo/tcp/pair.cc:538] Connection closed by peer"
REPORT = """
E1122 10:00:00.1 7 torch/distributed/elastic/multiprocessing/api.py:8] failed (exitcode: 1)
x.errors.ChildFailedError: job.py FAILED
Failures:
{}
Root Cause (first observed failure):
{}
"""
RANK_END = """[{0}]:
  time      : 2026-11-22_10:00:{2}
  rank      : {0} (local_rank: {0})
  exitcode  : {1} (pid: 5) """


def report(*ends):
    """torchrun's report on ranks, codes and seconds; the first is the one that it blames."""
    root, *others = (RANK_END.format(*end) for end in ends)
    return REPORT.format("\n".join(others), root).splitlines()


@pytest.mark.parametrize(
    ("lines", "elsewhere", "code", "reason"),
    [
        (["[rank1]: ValueError: no frames", LOST, *report((1, 1, "00"))], "",
         1, "ValueError: no frames"),
        (["no frames", *report((1, 1, "00"))], "", 1, "no frames"),
        (["no frames", LOST, *report((1, 1, "00"))], "", 1, "no frames"),
        (["job.py: error: no option --x", "[W] a warning", *report((0, 2, "00"))], "",
         2, "job.py: error: no option --x"),
        # Both ends were seen at once. What torchrun ends later is no cause.
        ([LOST, *report((0, 1, "00"), (1, -9, "00"))], "", -9, "rank 1 was killed by SIGKILL"),
        ([LOST, *report((0, 1, "00"), (2, -15, "00"), (1, -9, "30"))], "", 1, LOST[9:]),
        ([LOST, *report((0, 1, "00"))], "node 1 (b): out of memory",
         1, "node 1 (b): out of memory"),
        (["x", *report((0, 7, "00"))], "node 1 (b): gloo: lost",
         7, "rank 0 ended with exit code 7"),
        (["x", *report((0, 7, "00"))], "node 1 (b): node 0 (a): the job has ended there",
         7, "rank 0 ended with exit code 7"),
        (["[rank0]: KeyboardInterrupt"], "node 1 (b): x went wrong",
         1, "node 1 (b): x went wrong"),
        (["[rank0]: ValueError: no frames"], "node 1 (b): gloo: lost",
         1, "ValueError: no frames"),
        (["step 3"], "node 1 (b): x went wrong", 1, "node 1 (b): x went wrong"),
    ],
)  # fmt: skip
def test_the_end_of_a_job_is_that_of_the_process_that_failed_first(
    tmp_path, lines, elsewhere, code, reason
):
    with open(tmp_path / "log.txt", "wb") as file:
        log = OutputLog(file)
        for line in lines:
            log.write_line(line.encode())
    end = log.last_words.end(1, 0, elsewhere, by_torchrun=True)
    assert (end.code, end.reason) == (code, reason)
