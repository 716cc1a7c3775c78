"""Executors: one suite run over each of them, and what a cluster must survive.

A Ray cluster is `ray start` on this machine, once for each node. Each node has its own home for
mirrors, as separate machines have.
"""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cluster import kill_tree, needs_ray, ray_nodes
from tests.processes import end_of
from tests.slurm import needs_slurm
from zoerefine.base.errors import UserError
from zoerefine.base.registries import EXECUTORS
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.queue.executor import open_executor

NEEDS = {"ray": needs_ray, "slurm": needs_slurm}


@pytest.fixture(scope="module")
def one_node(tmp_path_factory):
    """The address of a Ray cluster of one node, which starts sooner than three."""
    with ray_nodes(tmp_path_factory.mktemp("node")) as (address, _, _):
        yield address


@pytest.fixture(params=[pytest.param(name, marks=NEEDS.get(name, ())) for name in EXECUTORS])
def executor(request, monkeypatch):
    """Each executor in turn."""
    if request.param == "slurm":
        request.getfixturevalue("slurm")
    if request.param == "ray":
        monkeypatch.setenv("RAY_ADDRESS", request.getfixturevalue("one_node"))
    with open_executor(request.param) as opened:
        yield opened


@pytest.fixture
def submit(executor, repository, config, home, tmp_path, wait_until):
    """Submit the repository's job; returns its ticket. `submit.wait(ticket)` is its outcome."""

    def start(*words):
        where = ("--repo", repository.folder, "--commit", repository.first, "--config", config)
        folders = ("--runs", tmp_path / "runs", "--caller", tmp_path)
        words = (*where, *folders, "--module", "job.py", *words)
        return executor.submit([str(word) for word in words], tmp_path / "launch")

    def wait(ticket):
        outcomes = []

        def has_ended():
            outcomes.append(executor.poll(ticket))
            return outcomes[-1] is not None

        wait_until(has_ended)
        return outcomes[-1]

    start.wait = wait
    return start


@pytest.fixture
def logs_of(tmp_path):
    """What the jobs have printed so far."""
    return lambda: "".join(path.read_text() for path in tmp_path.glob("runs/job/*-*/log.txt"))


def test_a_finished_job_has_exit_code_0(submit, only_run):
    ticket = submit("KEY", "other")
    assert submit.wait(ticket).code == 0
    assert only_run().status().state == "finished"
    assert "['KEY', 'other']" in only_run().log_file.read_text()


def test_a_failed_job_has_its_own_exit_code_and_last_line(submit, config):
    config.write_text("fail: 1\n")
    outcome = submit.wait(submit())
    assert (outcome.code, outcome.message) == (1, "it went wrong")


def test_a_launch_that_is_refused_gives_the_reason(submit):
    outcome = submit.wait(submit("--module", "absent.py"))
    assert (outcome.code, "no script absent.py" in outcome.message) == (2, True), outcome


def test_cancel_lets_the_job_save_a_checkpoint(submit, executor, config, only_run, wait_until,
                                               logs_of):  # fmt: skip
    config.write_text("wait: 1\n")
    ticket = submit()
    wait_until(lambda: "waiting" in logs_of())
    assert executor.poll(ticket) is None
    executor.cancel(ticket)
    assert submit.wait(ticket).code == 130
    assert "stopped with a checkpoint" in logs_of()
    assert only_run().status().state == "killed"


def test_a_second_cancel_kills_the_job(submit, executor, config, only_run, wait_until, logs_of):
    config.write_text("stubborn: 1\n")
    ticket = submit()
    wait_until(lambda: "ready" in logs_of())
    executor.cancel(ticket)
    wait_until(lambda: "asked to stop" in logs_of())
    assert executor.poll(ticket) is None
    executor.cancel(ticket)
    assert submit.wait(ticket).code > 128
    wait_until(lambda: only_run().status().state == "killed")


def test_an_unknown_executor_is_refused_by_name():
    with pytest.raises(UserError, match=r"--executor: no executor 'slurn'; known: local"):
        open_executor("slurn")


@needs_ray
def test_ctrl_c_on_a_queue_reaches_its_jobs_on_the_cluster(cluster, launch, config, logs_of,
                                                           only_run, wait_until):  # fmt: skip
    config.write_text("wait: 1\n")
    running = launch("--executor", "ray", env={"RAY_ADDRESS": cluster[0]}, background=True)
    wait_until(lambda: "waiting" in logs_of(), running)
    running.send_signal(signal.SIGINT)
    end_of(running, 130)
    assert "stopped with a checkpoint" in logs_of()
    assert only_run().status().state == "killed"


@needs_ray
def test_when_a_node_dies_its_job_resumes_on_another(  # the last one: it leaves two nodes
    cluster, launch, config, repository, tmp_path, wait_until
):
    address, nodes, homes = cluster
    gate = tmp_path / "gate"
    config.write_text(f"steps: 1\ngate: {gate}\n")
    words = ("--seeds", "0:3", "--parallel", "3", "--executor", "ray")
    running = launch(*words, env={"RAY_ADDRESS": address}, background=True)

    def rows(path):
        return [line.split() for line in path.read_text().splitlines()]

    def victims():
        """Jobs that have done two steps on a node other than the head."""
        for path in tmp_path.glob("runs/job/*-*/steps.txt"):
            if len(found := rows(path)) >= 2 and found[-1][1] != "head":
                yield path, found[-1][1]

    wait_until(lambda: any(victims()), running)
    path, node = next(victims())
    launcher = RunDir(path.parent).status().pid
    os.kill(launcher, signal.SIGKILL)  # a node that ends may lose it first
    wait_until(lambda: not Path(f"/proc/{launcher}").exists())  # its task has seen that
    kill_tree(nodes[node])
    gate.touch()
    end_of(running)
    assert [row[0] for row in rows(path)] == [str(step) for step in range(12)]  # none twice or lost
    assert len({row[1] for row in rows(path)}) == 2  # started on one node, ended on another
    runs = [RunDir(path.parent) for path in tmp_path.glob("runs/job/*-*/results.json")]
    assert len(runs) == 3
    for run in runs:
        assert json.loads(run.provenance_file.read_text())["commit"] == repository.first
    mirrors = {path.parts[-3] for path in homes.glob("*/mirrors/*.git")}
    assert len(mirrors & {"head", "second", "third"}) >= 2  # each node has its own
