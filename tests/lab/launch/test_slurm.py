"""Jobs on a real Slurm: interrupted by the time limit, by preemption, by the death of a node, and
by a logout, they end with the weights of an undisturbed run."""

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from typing import ClassVar

import pytest

from tests.processes import end_of
from tests.slurm import needs_slurm
from zoerefine.base.errors import UserError
from zoerefine.base.registries import EXECUTORS
from zoerefine.base.run_dir import RunDir
from zoerefine.cli import main
from zoerefine.lab.launch.queue.executor import JobOutcome, Resources, open_executor
from zoerefine.lab.launch.queue.slurm.sbatch_options import sbatch_options
from zoerefine.lab.launch.queue.slurm.submission import is_in_slurm, job_variables
from zoerefine.lab.search.study.storage import password_from

# A training of thirty steps whose weights follow from the seed. After ten steps it waits for a
# file. It saves its state after each step, or only when it is asked to stop.
TRAINING = """
import hashlib, json, os, random, signal, sys, time
from pathlib import Path

config, run = json.loads(Path(sys.argv[2]).read_text()), Path(os.environ["ZOEREFINE_RUN_FOLDER"])
stops = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stops.append(1))
file = run / "state.json"
state = json.loads(file.read_text()) if file.exists() else {"step": 0, "weights": [0.0] * 4,
                                                            "nodes": [], "stops": []}
state["nodes"].append(os.environ.get("SLURMD_NODENAME", ""))

def save():
    Path(f"{file}.new").write_text(json.dumps(state))
    os.replace(f"{file}.new", file)

print("started", flush=True)
while state["step"] < 30:
    if stops:
        time.sleep(0.3)  # a second signal may come
        state["stops"].append(len(stops))
        save()
        sys.exit(130)
    if state["step"] == 10 and not Path(config["gate"]).exists():
        time.sleep(0.02)
        (run / "waits").touch()
        continue
    noise = random.Random(state["step"])
    state["weights"] = [0.9 * weight + noise.gauss() for weight in state["weights"]]
    state["step"] += 1
    if config["save"] == "always":
        save()
text = json.dumps(state["weights"])
(run / "weights.sha256").write_text(hashlib.sha256(text.encode()).hexdigest())
save()
(run / "results.json").write_text(json.dumps({"loss": state["weights"][0]}))
"""


@pytest.fixture
def training(repository, config, tmp_path):
    """The repository's job is this training: training(save) with `always` or `at stop`."""

    def write(save):
        (repository.folder / "job.py").write_text(TRAINING)
        repository.git("commit", "--quiet", "--all", "--message", "training")
        config.write_text(json.dumps({"gate": str(tmp_path / "gate"), "save": save}))
        return "--commit", "HEAD", "--executor", "slurm"

    return write


@pytest.fixture
def undisturbed(tmp_path):
    """The digest of the weights of this training without launcher and Slurm."""

    def train():
        folder = tmp_path / "undisturbed"
        folder.mkdir()
        (folder / "gate").touch()
        (folder / "config").write_text(json.dumps({"gate": str(folder / "gate"), "save": "always"}))
        (folder / "job.py").write_text(TRAINING)
        environment = os.environ | {"ZOEREFINE_RUN_FOLDER": str(folder)}
        command = [sys.executable, folder / "job.py", "--config", folder / "config"]
        subprocess.run(command, env=environment, check=True)
        return (folder / "weights.sha256").read_text()

    return train


@pytest.fixture
def the_run(tmp_path):
    """The one run that was launched."""

    def find():
        found = [path.parents[1] for path in tmp_path.glob("runs/job/*/slurm/submitted.json")]
        if not found:
            raise FileNotFoundError
        return RunDir(found[0])

    return find


def is_waiting(run):
    return (run.path / "waits").exists()


@pytest.fixture(params=["signal", "clock"])
def reach_limit(request, slurm, the_run):
    """Let the job come to its time limit: send the signal that Slurm sends, or wait for Slurm's.

    An administrator can make the limit of a running job a minute.
    """

    def reach():
        number = the_run().read_json(the_run().path / "slurm/submitted.json")["job"]
        if request.param == "signal":
            slurm.run("scancel", "--batch", "--signal=USR1", str(number))
        else:
            slurm.run("scontrol", "update", f"JobId={number}", "TimeLimit=1")

    return reach


def check_end(running, run, undisturbed, starts):
    """The queue succeeded; the training was started so often, and its weights are right.

    Whenever it was asked to stop, it got one signal: a second one would kill it.
    """
    end_of(running)
    assert (run.path / "weights.sha256").read_text() == undisturbed()
    state = json.loads((run.path / "state.json").read_text())
    assert len(state["nodes"]) == starts
    assert set(state["stops"]) <= {1}
    number = run.read_json(run.path / "slurm/submitted.json")["job"]
    assert [path.name for path in (run.path / "slurm").glob("*.log")] == [f"{number}.log"]
    return state["nodes"]


@needs_slurm
def test_a_job_at_its_time_limit_saves_a_checkpoint_and_is_queued_again(
    slurm, training, launch, the_run, wait_until, undisturbed, reach_limit, tmp_path
):
    words = training("at stop")
    running = launch(*words, "--time", "5", "--grace", "25", background=True)
    wait_until(lambda: is_waiting(the_run()), running)
    reach_limit()
    wait_until(lambda: the_run().path.joinpath("slurm/requeued.json").exists(), running)
    (tmp_path / "gate").touch()
    check_end(running, the_run(), undisturbed, starts=2)
    assert the_run().read_json(the_run().path / "slurm/requeued.json")["times"] == 1


@needs_slurm
def test_a_job_that_is_not_queued_again_at_its_time_limit_says_so(
    training, launch, the_run, wait_until, reach_limit
):
    words = (*training("at stop"), "--time", "5", "--grace", "25", "--requeues", "0")
    running = launch(*words, background=True)
    wait_until(lambda: is_waiting(the_run()), running)
    reach_limit()
    _, errors = end_of(running, 124)
    assert "it reached its time limit" in errors.splitlines()[-1]


@needs_slurm
def test_a_preempted_job_saves_a_checkpoint_and_goes_on(
    slurm, training, launch, the_run, wait_until, undisturbed, tmp_path
):
    running = launch(*training("at stop"), "--partition", "low", background=True)
    wait_until(lambda: is_waiting(the_run()), running)
    urgent = ("--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null")
    slurm.run("sbatch", *urgent, "--wrap", "sleep 1")
    wait_until(lambda: the_run().path.joinpath("state.json").exists(), running)
    (tmp_path / "gate").touch()
    check_end(running, the_run(), undisturbed, starts=2)


@needs_slurm
def test_a_job_whose_node_dies_goes_on_at_another(
    slurm, training, launch, the_run, wait_until, undisturbed, tmp_path
):
    running = launch(*training("always"), background=True)
    wait_until(lambda: is_waiting(the_run()), running)
    (node,) = slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()
    slurm.kill_node(node)
    try:
        (tmp_path / "gate").touch()
        nodes = check_end(running, the_run(), undisturbed, starts=2)
    finally:
        slurm.start_node(node)
    assert nodes[0] == node != nodes[1]


@needs_slurm
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_after_a_logout_the_same_command_finds_its_job(
    slurm, training, launch, the_run, wait_until, undisturbed, tmp_path, number
):
    words = training("at stop")
    first = launch(*words, "--notify", f"tee {tmp_path}/sent", background=True)
    wait_until(lambda: is_waiting(the_run()), first)
    job = the_run().read_json(the_run().path / "slurm/submitted.json")["job"]
    first.send_signal(number)
    _, errors = end_of(first, 130 if number == signal.SIGHUP else -number)
    if number == signal.SIGHUP:
        assert errors.splitlines()[-1].startswith("the jobs go on in the cluster")
        sent = json.loads((tmp_path / "sent").read_text())
        assert (sent["state"], sent["message"]) == ("interrupted", errors.splitlines()[-1])
    # As if it was killed before it had recorded the number.
    (the_run().path / "slurm/submitted.json").unlink()
    second = launch(*words, background=True)
    wait_until(the_run, second)
    (tmp_path / "gate").touch()
    check_end(second, the_run(), undisturbed, starts=1)
    assert the_run().read_json(the_run().path / "slurm/submitted.json")["job"] == job


@needs_slurm
def test_a_job_that_waits_in_slurm_is_shown_and_cancelled(
    slurm, training, launch, the_run, wait_until
):
    with slurm.partition_state("low", "DOWN"):
        running = launch(*training("at stop"), background=True)
        wait_until(lambda: is_in_slurm(the_run().path), running)
        listed = launch("--list").stdout
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=180)
    assert "pending" in listed
    assert errors.splitlines()[-1].endswith(": CANCELLED")  # there is no log
    assert "runs/job/" in listed
    assert running.returncode == 130, errors
    assert not is_in_slurm(the_run().path)
    assert slurm.run("squeue", "--noheader") == ""


@needs_slurm
def test_secrets_reach_neither_slurms_files_nor_the_runs(
    slurm, launch, config, tmp_path, monkeypatch, wait_until
):
    secret = "Zq8vTn3LkW5xRb7YhC2d"
    monkeypatch.setenv("MY_API_KEY", secret)
    monkeypatch.setenv("ORDINARY", "ordinary-value")
    config.write_text("wait: 1\n")
    running = launch("--executor", "slurm", background=True)
    wait_until(lambda: list(tmp_path.glob("runs/job/*-*/log.txt")), running)
    stored = [path.read_bytes() for path in (slurm.folder / "state").rglob("*") if path.is_file()]
    written = [path.read_bytes() for path in tmp_path.glob("runs/**/*") if path.is_file()]
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=180)
    assert any(b"ordinary-value" in data for data in stored)  # the files of the environment
    assert not any(secret.encode() in data for data in stored + written)
    refused = launch("--executor", "slurm", "--", f"--key={secret}", code=2)
    assert "the job's words contain the secret of MY_API_KEY" in refused.stderr


def test_a_jobs_variables_are_the_submitters_without_secrets_and_other_jobs():
    environment = {
        "PATH": "/bin", "PGPASSWORD": "hunter22", "LINE": "user:hunter22@host",
        "SLURM_JOB_ID": "7", "SBATCH_WAIT": "1", "SBATCH_ACCOUNT": "lab",
        "ZOEREFINE_RUN_FOLDER": "/r", "BASH_FUNC_f%%": "() { :; }",
    }  # fmt: skip
    assert job_variables(environment) == {"PATH": "/bin", "SBATCH_ACCOUNT": "lab"}


def test_a_databases_password_is_no_variable_of_a_job_whatever_its_name(monkeypatch):
    """Slurm stores a job's variables."""
    environment = {"PATH": "/bin", "DBP": "Sesam-oeffne_dich41", "URL": "x:Sesam-oeffne_dich41@y"}
    assert set(job_variables(environment)) == {"PATH", "DBP", "URL"}
    monkeypatch.setenv("DBP", environment["DBP"])
    password_from("DBP")
    assert set(job_variables(environment)) == {"PATH"}


def test_resources_become_options_of_sbatch():
    asked = Resources(gpus=2, cpus=8, memory="32G", partition="gpu,long", time="1-12", grace=60)
    options = sbatch_options(asked)
    assert "--time=2:01" in sbatch_options(Resources(time="2:01", grace=60))
    assert {"--gres=gpu:2", "--cpus-per-task=8", "--mem=32G", "--partition=gpu,long",
            "--time=1-12", "--signal=B:USR1@60", "--requeue"} <= set(options)  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"partition": "gpu --wrap=id"}, "--partition must be the name of a partition"),
        ({"partition": "gpu\n#SBATCH --uid=0"}, "--partition must be the name of a partition"),
        ({"partition": "-x"}, "--partition must be the name of a partition"),
        ({"memory": "lots"}, "--memory must be a size.*32G"),
        ({"time": "tomorrow"}, "--time must be minutes"),
        ({"time": "2"}, "--time 2 may leave a job no time: .* more than 180 s"),
        ({"time": "2", "grace": 60}, "--time 2 may leave a job no time: .* more than 120 s"),
        ({"gpus": 0.5}, "Slurm reserves whole GPUs"),
        ({"cpus": 0}, "--cpus must be an integer from 1 to 4096"),
        ({"grace": -1}, "--grace must be an integer from 0 to 65535"),
    ],
)
def test_wrong_resources_are_refused_in_one_line(asked, reason):
    with pytest.raises(UserError, match=reason):
        sbatch_options(Resources(**asked))


class RecordingExecutor:
    """An executor that runs nothing and records what it was asked to reserve and to run."""

    keeps_jobs = False
    opened: ClassVar[list] = []
    submitted: ClassVar[list] = []

    def submit(self, words, folder):
        self.submitted.append(words)

    def poll(self, ticket):
        return JobOutcome(0)


def recording_executor(resources):
    RecordingExecutor.opened.append(resources)
    return nullcontext(RecordingExecutor())


def test_a_queue_of_our_own_training_reads_its_resources_from_the_config(
    repository, config, home, monkeypatch, here
):
    monkeypatch.setitem(EXECUTORS, "recording", f"{__name__}:recording_executor")
    (repository.folder / "zoerefine").mkdir()
    for name in ("__init__.py", "train.py"):
        (repository.folder / "zoerefine" / name).touch()
    repository.commit("three")
    other = config.with_name("other.yaml")
    other.touch()
    config.write_text("CLUSTER: {TIME: 12:00:00, GPUS: 1, PARTITION: long}\n")
    words = ["run", "--repo", str(repository.folder), "--commit", "HEAD", "--executor", "recording"]
    assert main([*words, "--config", str(config), "--partition", "gpu", "CLUSTER.CPUS", "4"]) == 0
    asked = Resources(time="12:00:00", gpus=1, partition="gpu", cpus=4)
    assert RecordingExecutor.opened == [asked] and len(RecordingExecutor.submitted) == 1
    assert "differ in CLUSTER.GPUS" in here(*words, "--configs", f"{config},{other}", code=2).err
    config.write_text("CLUSTER: {GPUS: many}\n")
    assert "CLUSTER.GPUS must be a number" in here(*words, "--config", config, code=2).err


def test_without_slurm_the_executor_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(UserError, match="Slurm's command sbatch is not on PATH"),
        open_executor("slurm"),
    ):
        pass
