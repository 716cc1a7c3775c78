"""--processes: torchrun starts a job's script several times, and nothing of it stays behind."""

import json
import os
import signal

import pytest

from tests.processes import end_of, is_alive, parent_of
from zoerefine.lab.runs.metrics import read_metrics

pytestmark = pytest.mark.depth  # torchrun is a part of torch

JOB = """
import argparse, json, os, signal, sys, time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--config"), parser.add_argument("rest", nargs="*")
text = Path(parser.parse_args().config).read_text()
rank, run = int(os.environ["RANK"]), Path(os.environ["ZOEREFINE_RUN_FOLDER"])
(run / f"rank-{rank}").write_text(str(os.getpid()))
while len([*run.glob("rank-?")]) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)
if "fail" in text and rank == 1:
    sys.exit("rank 1 went wrong")
if "exit" in text and rank == 1:
    print("epoch 3, loss 0.2", flush=True)
    sys.exit(7)
if "abort" in text and rank == 1:  # as after gloo, in the interpreter's shutdown
    os.write(2, b"rank 1 went wrong\\nterminate called without an active exception\\n")
    os.abort()
if "DO" in text:
    if "stubborn" in text:
        signal.signal(signal.SIGINT, lambda *_: print("asked to stop", flush=True))
    try:
        print("waiting", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        (run / f"stopped-{rank}").touch()
        sys.exit(130)
if "print" in text:
    first = "first 0.5\\n" if rank == 0 else ""
    sys.stdout.write(f"every {0.5 + rank / 10}, epoch 1, step 0.5\\n{first}")
if rank == 0:
    met = sorted(path.name for path in run.glob("rank-?"))
    results = {"met": met, "threads": os.environ["OMP_NUM_THREADS"]}
    (run / "results.json").write_text(json.dumps(results))
"""


@pytest.fixture
def ranks(repository):
    """The repository's job in this form, committed."""
    (repository.folder / "job.py").write_text(JOB)
    repository.git("commit", "--quiet", "-am", "ranks")
    repository.first = repository.git("rev-parse", "HEAD")


@pytest.fixture
def two(launch, ranks):
    """Launch it with two processes."""

    def run(**options):
        return launch("--processes", "2", **options)

    return run


@pytest.fixture
def two_printing(ranks, config):
    """All processes of this job print a metric, and the first one another."""
    config.write_text("print: 1\n")


def pids_of(run):
    """The processes of a run that have met."""
    return [int((run.path / f"rank-{rank}").read_text()) for rank in (0, 1)]


@pytest.fixture
def waiting(two, only_run, config, wait_until):
    """Launch it until its processes wait: waiting() -> the launch, its run, and their pids."""

    def start(what="wait"):
        config.write_text(f"DO: {what}\n")
        process = two(background=True)
        wait_until(lambda: only_run().log_file.read_text().count("waiting") == 2, process)
        return process, only_run(), pids_of(only_run())

    return start


def test_the_processes_work_together_in_a_run_of_their_own(two, launch, only_run, tmp_path):
    two(env={"OMP_NUM_THREADS": "1"})
    run = only_run()
    found = json.loads(run.results_file.read_text())
    assert found == {"met": ["rank-0", "rank-1"], "threads": "1"}
    assert run.read_json(run.provenance_file)["processes"] == 2
    assert "nothing to do" in two().stderr
    assert launch("--processes", "1", code=None).returncode  # without torchrun there is no RANK
    assert len([p for p in (tmp_path / "runs" / "job").iterdir() if p.name != "latest"]) == 2


def test_values_that_all_processes_print_are_named(two_printing, launch, only_run):
    words = "--processes", "2", "--metric-pattern"
    launch(*words, r"every (\S+)")
    [note] = read_metrics(only_run()).faults
    assert note.startswith("log.txt: every may have a value of each of the 2 p")
    for pattern in (r"first (\S+)", r"epoch (?P<step>1), step (?P<loss>\S+)"):
        assert read_metrics(only_run(), [pattern]).faults == (note,)


@pytest.mark.parametrize(
    ("what", "code", "reason"),
    [
        ("fail", 1, "rank 1 went wrong"),
        ("exit", 7, "rank 1 ended with exit code 7"),
        ("abort", 1, "rank 1 went wrong"),
    ],
)
def test_a_failed_process_ends_all_with_its_message_and_code(
    two, only_run, config, what, code, reason
):
    config.write_text(f"DO: {what}\n")
    done = two(code=code)
    assert done.stderr.splitlines()[-1].startswith(f"error: {reason}; see ")
    run = only_run()
    assert (run.status().state, run.status().reason) == ("failed", reason)
    assert run.read_json(run.provenance_file)["exit_status"] == code
    assert not any(is_alive(pid) for pid in pids_of(run))


def test_a_killed_process_is_named(waiting):
    process, run, pids = waiting()
    os.kill(pids[1], signal.SIGKILL)
    end_of(process, 137)
    assert run.status().reason == "rank 1 was killed by SIGKILL"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_is_the_reason_and_the_exit_code(waiting, number):
    process, run, _ = waiting()
    process.send_signal(number)
    end_of(process, 128 + number)
    assert (run.status().state, run.status().reason) == ("killed", f"stopped by {number.name}")


@pytest.mark.parametrize("kind", ["stop", "stop twice", "torchrun killed"])
def test_no_process_outlives_its_launch(waiting, wait_until, kind):
    process, run, pids = waiting("wait stubborn" if kind == "stop twice" else "wait")
    assert all(map(is_alive, pids))
    if kind == "torchrun killed":
        parent = parent_of(pids[0])
        os.kill(parent, signal.SIGKILL)
    else:
        process.send_signal(signal.SIGINT)
    if kind == "stop twice":
        wait_until(lambda: "asked to stop" in run.log_file.read_text())
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode != 0
    assert run.status().state == "killed"
    assert not any(map(is_alive, pids))
    assert kind != "stop" or (run.path / "stopped-0").exists()


def test_processes_of_a_killed_launch_end_before_the_next_attempt(two, waiting, wait_until):
    process, _, pids = waiting()
    parent = parent_of(pids[0])
    os.kill(parent, signal.SIGSTOP)  # it cannot pass on that its launcher has died
    process.kill()
    os.kill(parent, signal.SIGKILL)
    process.communicate()
    assert any(map(is_alive, pids))
    again = two(background=True)
    wait_until(lambda: not any(map(is_alive, pids)))
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=120)
