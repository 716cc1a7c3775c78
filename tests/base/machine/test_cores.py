"""Cores and OpenMP: a container's quota, the affinity mask, and the user's own settings."""

import os
from pathlib import Path

import pytest

from tests.processes import run_new_python
from zoerefine.base.machine import cores
from zoerefine.base.machine.cores import usable_cores

CPU_GROUPS = Path("/sys/fs/cgroup/cpu")


@pytest.mark.parametrize("quota, expected", [(None, 8), (0.5, 1), (1.5, 2), (64.0, 8)])
def test_threads_follow_the_quota_and_the_affinity_mask(monkeypatch, quota, expected):
    limited_to(monkeypatch, quota)
    assert usable_cores() == expected
    environment = {}
    cores.choose_openmp(environment)
    assert environment.get("OMP_NUM_THREADS") == (str(expected) if expected < 8 else None)
    assert environment["GOMP_SPINCOUNT"] == cores.SPINS


def limited_to(monkeypatch, quota):
    monkeypatch.setattr("zoerefine.base.machine.cores.cpu_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    "name, value",
    [("GOMP_SPINCOUNT", "7"), ("OMP_WAIT_POLICY", "PASSIVE"), ("OMP_NUM_THREADS", "3")],
)
def test_the_users_settings_win(monkeypatch, name, value):
    limited_to(monkeypatch, 2.0)
    environment = {name: value}
    cores.choose_openmp(environment)
    assert environment[name] == value
    spins = cores.SPINS if name == "OMP_NUM_THREADS" else environment.get(name)
    assert environment.get("GOMP_SPINCOUNT") in (None, spins)


def test_a_child_process_chooses_again_by_its_own_limits(monkeypatch):
    limited_to(monkeypatch, 2.0)
    environment = {}
    cores.choose_openmp(environment)
    limited_to(monkeypatch, 4.0)
    cores.choose_openmp(environment)
    assert environment["OMP_NUM_THREADS"] == "4"


def test_workers_share_the_cores_and_keep_their_share(monkeypatch):
    limited_to(monkeypatch, 4.0)
    environment = {}
    cores.choose_openmp(environment)
    cores.share_cores(environment, 2)
    cores.choose_openmp(environment)  # in the worker
    assert (environment["OMP_NUM_THREADS"], environment["GOMP_SPINCOUNT"]) == ("2", cores.SPINS)
    of_user = {"OMP_NUM_THREADS": "3"}
    cores.share_cores(of_user, 2)
    assert of_user["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(("processes", "threads"), [(1, "4"), (2, "2"), (8, "1")])
def test_the_processes_of_a_job_on_ray_share_the_reserved_cores(monkeypatch, processes, threads):
    monkeypatch.setattr("zoerefine.base.machine.cores.usable_cores", lambda: 12)
    monkeypatch.setattr("zoerefine.base.machine.cores.visible_cores", lambda: 12)
    environment = {"OMP_NUM_THREADS": "4"}  # as Ray sets it
    cores.choose_openmp(environment)
    cores.use_reserved_cores(environment, 4)
    cores.choose_openmp(environment)  # in the launcher
    assert environment["OMP_NUM_THREADS"] == "4"
    cores.share_cores(environment, processes)
    assert environment["OMP_NUM_THREADS"] == threads
    of_user = {"OMP_NUM_THREADS": "3"}
    cores.use_reserved_cores(of_user, 4)
    cores.share_cores(of_user, 2)
    assert of_user["OMP_NUM_THREADS"] == "3"


def test_every_entry_chooses_before_torch_is_loaded():
    code = ("import os, sys, zoerefine\n"
            "assert 'torch' not in sys.modules\n"
            "print(os.environ['GOMP_SPINCOUNT'])")  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP", "GOMP", "ZOE"))}
    assert run_new_python(code, env=environment).stdout.strip() == cores.SPINS


@pytest.mark.skipif(
    not os.access(CPU_GROUPS / "cgroup.procs", os.W_OK), reason="control groups cannot be made here"
)
def test_a_real_quota_of_half_a_core_gives_one_thread():
    group = CPU_GROUPS / f"zoerefine-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_quota_us").write_text("50000")
        code = ("import os\n"
                f"open('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
                "import zoerefine\n"
                "print(os.environ['OMP_NUM_THREADS'])\n")  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OMP")}
        assert run_new_python(code, env=environment).stdout.strip() == "1"
    finally:
        group.rmdir()
