"""Queues on a real Slurm that does not answer, is full, refuses jobs, or lets them wait."""

import json
import signal

import pytest

from tests.slurm import needs_slurm
from zoerefine.base.errors import UserError
from zoerefine.lab.launch.queue.executor import Resources, open_executor

pytestmark = needs_slurm
SLURM = ("--executor", "slurm")


@pytest.fixture
def gated(config, tmp_path_factory):
    """The repository's job waits for a file, which this opens: gated()."""
    gate = tmp_path_factory.mktemp("gate") / "gate"  # no word of the test's name, which jobs read
    config.write_text(f"steps: 1\ngate: {gate}\n")
    return gate.touch


@pytest.fixture
def has_begun(tmp_path):
    """Whether a job has done some of its steps."""
    return lambda: any(path.stat().st_size for path in tmp_path.glob("runs/job/*/steps.txt"))


def lines_until(process, *words):
    """What a process prints up to a line with these words."""
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip())
        if all(word in line for word in words):
            return lines
    raise AssertionError("\n".join(lines))


def rest_of(process):
    """The exit code of a process, and what else it prints."""
    _, errors = process.communicate(timeout=180)
    return process.returncode, errors.splitlines()


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_queue_outlives_a_restart_of_the_controller(slurm, launch, gated, has_begun, wait_until):
    running = launch(*SLURM, "--seeds", "0:2", "--parallel", "1", background=True)
    wait_until(has_begun, running)
    slurm.stop_controller()
    try:
        gated()
        lines = lines_until(running, "finished", "seed 0")  # the other one could not be submitted
    finally:
        slurm.start_controller()
    code, rest = rest_of(running)
    assert code == 0, rest
    assert sum("Unable to contact slurm controller" in line for line in lines + rest) == 1


def test_a_queue_waits_for_room_in_slurm(slurm, launch, gated, tmp_path):
    gated()
    words = (*SLURM, "--seeds", "0:2")
    held = slurm.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap", "true")
    with slurm.restarted_with("MaxJobCount=1"):
        stopped = launch(*words, background=True)
        lines_until(stopped, "warning: waiting for Slurm: ", "no room")
        stopped.send_signal(signal.SIGINT)
        assert rest_of(stopped)[0] == 130
        running = launch(*words, background=True)
        lines_until(running, "warning: waiting for Slurm: ", "no room")
    slurm.run("scancel", held.strip())
    code, lines = rest_of(running)
    assert code == 0, lines
    assert len(list(tmp_path.glob("runs/job/*-*/results.json"))) == 2


def test_a_job_of_a_folder_whose_name_has_a_line_end_is_not_ours(slurm, launch, gated, tmp_path):
    gated()
    folder = tmp_path / "two\nlines"
    folder.mkdir()
    words = ("--parsable", "--hold", "--output=/dev/null", f"--chdir={folder}", "--wrap", "true")
    other = slurm.run("sbatch", *words)
    try:
        launch(*SLURM)
    finally:
        slurm.run("scancel", other.strip())
    assert len(list(tmp_path.glob("runs/job/*-*/results.json"))) == 1


@pytest.mark.parametrize("option", [("partition", "nosuch"), ("memory", "2T"), ("gpus", "1")])
def test_a_refused_job_leaves_everything_as_it_was(slurm, launch, config, tmp_path, option):
    refused = (*SLURM, f"--{option[0]}", option[1])
    assert launch(*refused, code=2).stderr[:13] == "error: Slurm:"
    assert not (tmp_path / "runs").exists()
    config.write_text("fail: 1\n")
    launch(*SLURM, code=1)
    before = files_of(tmp_path / "runs")
    launch(*refused, code=2)
    assert files_of(tmp_path / "runs") == before


def test_a_job_that_slurm_refuses_later_does_not_stop_the_others(
    slurm, launch, gated, has_begun, wait_until
):
    running = launch(*SLURM, "--seeds", "0:3", "--parallel", "1", background=True)
    wait_until(has_begun, running)
    with slurm.partition_state("low", "DRAIN"):
        gated()
        code, lines = rest_of(running)
    states = [line.split()[0] for line in lines if "seed" in line][-3:]
    assert (code, sorted(states)) == (1, ["failed", "failed", "finished"]), lines
    assert "partition not available" in lines[-1]


def test_other_options_replace_a_job_that_waits(slurm, launch, gated, tmp_path):
    gated()
    with slurm.partition_state("low", "DOWN"):
        first = launch(*SLURM, background=True)
        lines_until(first, "waiting", "(PartitionDown)")
        first.kill()
        first.wait()
        code, lines = rest_of(launch(*SLURM, "--partition", "high", background=True))
        assert code == 0, lines
        assert lines[0].startswith("submitted again with another --partition: ")
        assert slurm.run("squeue", "--noheader") == ""


def test_other_options_are_refused_to_a_job_that_has_started(
    slurm, launch, gated, has_begun, wait_until
):
    first = launch(*SLURM, background=True)
    wait_until(has_begun, first)
    first.kill()
    first.wait()
    second = launch(*SLURM, "--time", "10", "--cpus", "2", background=True)
    lines_until(second, "warning: ", "has started with another --cpus and --time")
    gated()
    assert rest_of(second)[0] == 0


def test_a_job_that_waits_is_shown_with_the_reason(slurm, launch, gated):
    with slurm.partition_state("low", "DOWN"):
        running = launch(*SLURM, background=True)
        lines_until(running, "waiting", ": its partition is down (PartitionDown)")
    lines_until(running, "running")
    gated()
    assert rest_of(running)[0] == 0


def test_a_job_that_can_never_start_is_a_warning_that_says_what_to_change(slurm, launch):
    running = launch(*SLURM, "--nodes", "3", "--processes", "3", background=True)
    lines = lines_until(running, "waiting", "(PartitionNodeLimit)")
    assert any("change --nodes or --partition" in line for line in lines)
    running.send_signal(signal.SIGINT)
    assert rest_of(running)[0] == 130


def test_a_partition_whose_limit_leaves_no_time_is_refused(slurm):
    limit = "the time limit 00:02:00 of the partition short may leave a job no time"
    with (
        pytest.raises(UserError, match=limit),
        open_executor("slurm", Resources(partition="short")),
    ):
        pass
    with open_executor("slurm", Resources(partition="short", grace=30)):
        pass


def test_a_percent_sign_in_the_path_of_a_run_is_no_pattern_of_slurm(slurm, launch, gated, tmp_path):
    gated()
    launch(*SLURM, "--runs", tmp_path / "100%j of %%it")
    (folder,) = (tmp_path / "100%j of %%it").glob("job/*-*/slurm")
    number = json.loads((folder / "submitted.json").read_text())["job"]
    assert f"job {number} on" in (folder / f"{number}.log").read_text()
    assert "has a backslash" in launch(*SLURM, "--runs", tmp_path / "back\\slash", code=2).stderr


def test_one_job_gives_its_own_exit_code_and_a_queue_gives_1(slurm, launch, config):
    config.write_text("code: 3\n")
    launch(code=3)
    launch(*SLURM, code=3)
    launch(*SLURM, "--seeds", "0:1", code=1)
