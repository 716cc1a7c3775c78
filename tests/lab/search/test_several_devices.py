"""STUDY.DEVICES: each trial is trained by several processes together."""

import os
import shutil
import signal
import threading

import pytest

from tests.lab.search.gate import GATE
from tests.processes import is_alive, parent_of
from zoerefine.base.errors import UserError
from zoerefine.base.machine.memory import workers_on_gpu
from zoerefine.commands import search
from zoerefine.commands.options import resources_of, settings_of
from zoerefine.depth.study.processes import report_to
from zoerefine.lab.launch.process.torchrun import processes_of
from zoerefine.lab.launch.queue.executor import Resources
from zoerefine.lab.search import worker_pool
from zoerefine.lab.search.study.claims import claim_trial, put_back
from zoerefine.lab.search.study.trials import reason_of, trial_run
from zoerefine.lab.search.subject import ClaimLost
from zoerefine.lab.search.worker import run_worker
from zoerefine.lab.search.worker_pool import MachineShares, visible_gpus, worker_settings

ONE = "{TRAIN: {LR: [0.001]}}"
GRID = ("STUDY.SAMPLER", "grid", "STUDY.PRUNER", "none")


def test_a_trial_of_two_processes_has_the_results_of_one(searched):
    values = []
    for processes in (1, 2):
        study = searched(ONE, *GRID, "STUDY.DEVICES", processes, folder=f"of-{processes}")
        run = trial_run(study.run, 0)
        assert run.read_json(run.provenance_file)["processes"] == processes
        assert run.status().state == "finished"
        values.append(study.trials()[0].value)
    assert values[1] == pytest.approx(values[0], rel=0.02)


def test_a_training_that_fails_in_every_process_is_a_failed_trial(searched, capfd):
    study = searched("{TRAIN: {LR: [1.0e+30]}}", *GRID, "STUDY.DEVICES", 2)
    (trial,) = study.trials()
    assert trial.state.name == "FAIL"
    assert "look at the frames named in" in reason_of(trial)
    assert capfd.readouterr().err.count(reason_of(trial)) == 1
    assert not [*trial_run(study.run, 0).path.glob(".failure*")]


def test_the_first_process_reports_to_the_trial_while_its_worker_holds_it(open_study):
    study = open_study(ONE, *GRID)
    study.subject.save(study.run)
    claim = claim_trial(study, "a")
    claim.run.path.mkdir(parents=True, exist_ok=True)
    shutil.copy(study.run.config_file, claim.run.config_file)
    report = report_to(study.run, claim.run, (str(claim.number), claim.id))
    assert report(3, {"abs_rel": 0.5}) is False
    assert study.trials()[0].intermediate_values == {3: 0.5}
    put_back(study, claim)
    with pytest.raises(ClaimLost):
        report(4, {"abs_rel": 0.4})


@pytest.fixture
def study(open_study, monkeypatch, tmp_path):
    """A study of one trial of two processes, which write a checkpoint after each step.

    Whenever they are started, they wait after two steps, until `study.open_gate()`.
    """
    monkeypatch.setenv(GATE, str(tmp_path / "gate"))
    words = ("TRAIN.EPOCHS", 4, "TRAIN.EVAL_EVERY", 4, "TRAIN.CHECKPOINT_S", 0.0)
    words += ("TRAIN.PICTURES", 0, "MODEL.NAME", "tests.lab.search.gated_network:Gated")
    made = open_study(ONE, *GRID, *words, "STUDY.DEVICES", 2)
    made.subject.save(made.run)
    made.open_gate = (tmp_path / "gate").touch
    return made


@pytest.fixture
def next_checkpoint(study, wait_until):
    """Wait until the trial's processes have written one more checkpoint; returns the processes."""
    run = trial_run(study.run, 0)

    def checkpoints():
        return {path.name for path in run.checkpoints.glob("step-*.pt")}

    def wait():
        before = checkpoints()
        wait_until(lambda: checkpoints() - before)
        ranks = [*processes_of(run)]
        assert len(ranks) == 2
        return ranks

    return wait


def test_a_trial_goes_on_after_a_stop_and_after_a_kill_of_one_process(
    study, next_checkpoint, capfd
):
    ranks = []

    def meanwhile(act):
        def wait_and_act():
            ranks[:] = next_checkpoint()
            act()

        threading.Thread(target=wait_and_act, daemon=True).start()

    meanwhile(lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_worker(study.run, "here")
    assert not any(map(is_alive, ranks))

    meanwhile(lambda: os.kill(ranks[-1], signal.SIGKILL))
    with pytest.raises(SystemExit) as ended:
        run_worker(study.run, "here")
    assert ended.value.code == 137  # as if the worker had been killed
    assert not any(map(is_alive, ranks))

    study.open_gate()
    run_worker(study.run, "here")
    (trial,) = study.trials()
    assert trial.state.name == "COMPLETE"
    assert len(trial.user_attrs["lost_claims"]) == 1  # a stop is no death
    assert capfd.readouterr().err.count("going on from step") == 2
    rows = trial_run(study.run, 0).metrics()
    assert [row["step"] for row in rows if row["phase"] == "train"] == [*range(1, 9)]


def test_after_a_kill_of_its_worker_a_run_never_has_two_writers(
    study, next_checkpoint, start_script, wait_until
):
    worker = start_script("search", "--join", study.run.path)
    ranks = next_checkpoint()
    torchrun = parent_of(ranks[0])
    os.kill(torchrun, signal.SIGSTOP)  # it cannot end the processes of its dead worker yet
    worker.kill()
    worker.wait()
    run = trial_run(study.run, 0)
    try:
        assert run.status().state == "running"  # it is locked
    finally:
        os.kill(torchrun, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, ranks)))
    wait_until(lambda: run.status().state == "killed")  # torchrun's last thread has ended
    assert not run.results_file.exists()  # the processes did not train to the end


def test_workers_share_gpus_and_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("zoerefine.base.machine.cores.usable_cores", lambda: 12)
    for gpus, devices, processes, groups, threads, on_a_gpu in (
        (["0", "1", "2", "5", "7"], 2, 2, ["0,1", "2,5", "0,1"], "2", 2),
        (["0", "1", "2", "5", "7"], 4, 1, ["0,1,2,5"] * 3, "4", 3),
        (["0", "3"], 4, 4, ["0,3"] * 3, "1", 3),
        (["0", "1", "2"], 1, 1, ["0", "1", "2"], "4", 1),
        (["0"], 1, 1, [None] * 3, "4", 3),
        ([], 2, 2, [None] * 3, "2", 1),
    ):
        shares = MachineShares(3, gpus, devices, processes)
        given = [shares.environment(number) for number in range(3)]
        assert [one.get("CUDA_VISIBLE_DEVICES") for one in given] == groups
        assert {one["OMP_NUM_THREADS"] for one in given} == {threads}
        assert {workers_on_gpu(one) for one in given} == {on_a_gpu}


def test_more_devices_than_the_machine_has_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(UserError, match=r"STUDY\.DEVICES is 3, and this machine has 2 GPUs"):
        visible_gpus(3)


@pytest.mark.parametrize(
    ("words", "options", "reserved"),
    [
        ([], [], (0, 1)),
        (["STUDY.DEVICES", "4"], [], (4, 4)),
        (["STUDY.DEVICES", "4"], ["--gpus", "0"], (0, 4)),
        (["STUDY.DEVICES", "4", "CLUSTER.CPUS", "32"], [], (4, 32)),
        (["STUDY.DEVICES", "4", "CLUSTER.CPUS", "32"], ["--cpus", "2"], (4, 2)),
    ],
)
def test_a_clusters_workers_reserve_the_gpus_of_a_trial(open_study, words, options, reserved):
    subject = open_study(ONE, *words).subject
    args = search.parser().parse_args(["--executor", "slurm", *options])
    resources = resources_of(args, worker_settings(settings_of(subject.cfg), subject))
    assert (resources.gpus, resources.cpus) == reserved


def test_a_search_that_torchrun_starts_several_times_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    with pytest.raises(UserError, match=r"set STUDY\.DEVICES, not --processes"):
        search.main(["--config", str(tiny), "SEARCH", ONE])
    assert not (tmp_path / "runs").exists()


def test_other_gpus_than_the_devices_are_refused(open_study):
    study = open_study(ONE, "STUDY.DEVICES", 4)
    with (
        pytest.raises(UserError, match=r"--gpus 2 and STUDY\.DEVICES 4 differ"),
        worker_pool.open_workers(study, "slurm", Resources(gpus=2.0)),
    ):
        pass
