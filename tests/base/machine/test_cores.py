"""Cores, memory and OpenMP: container limits, the affinity mask, and the user's own settings."""

import os
from pathlib import Path

import pytest

from tests.foreign import write_files
from tests.processes import run_new_python
from zoerefine.base.machine import cores as machine
from zoerefine.base.machine.memory import cpu_quota, memory_left

CPU_GROUPS = Path("/sys/fs/cgroup/cpu")


def container(root, group, mountinfo, files):
    """A file system as a process in a control group sees it."""
    write_files(root, files | {"proc/self/cgroup": group, "proc/self/mountinfo": mountinfo})
    return root


VERSION_2 = "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
VERSION_1 = (
    "31 23 0:27 {start} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:28 {start} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def test_the_smallest_quota_on_the_way_to_the_root_counts(tmp_path):
    root = container(tmp_path, "0::/outer/inner\n", VERSION_2, {
        "sys/fs/cgroup/outer/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n",
    })  # fmt: skip
    assert cpu_quota(root) == 0.5


def test_a_quota_of_version_1_is_read_from_inside_its_container(tmp_path):
    """The mount begins at the container's own group there."""
    root = container(
        tmp_path, "5:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n",
        VERSION_1.format(start="/docker/ab"),
        {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000\n",
         "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
         "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n",
         "sys/fs/cgroup/memory/memory.usage_in_bytes": "700\n",
         "sys/fs/cgroup/memory/memory.stat":
             "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n"},
    )  # fmt: skip
    assert (cpu_quota(root), memory_left(root)) == (2.5, 600)


def test_no_limit_is_none(tmp_path):
    root = container(
        tmp_path, "5:memory:/\n4:cpu,cpuacct:/\n0::/\n", VERSION_1.format(start="/") + VERSION_2,
        {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
         "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
         "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
         "sys/fs/cgroup/memory/memory.usage_in_bytes": "700\n",
         "sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n",
         "sys/fs/cgroup/memory.current": "700\n"},
    )  # fmt: skip
    assert (cpu_quota(root), memory_left(root)) == (None, None)
    assert (cpu_quota(tmp_path / "nothing"), memory_left(tmp_path / "nothing")) == (None, None)


def test_the_memory_limit_of_version_2_leaves_out_the_file_cache(tmp_path):
    root = container(tmp_path, "0::/job\n", VERSION_2, {
        "sys/fs/cgroup/job/memory.max": "1000\n", "sys/fs/cgroup/job/memory.current": "900\n",
        "sys/fs/cgroup/job/memory.stat": "anon 600\ninactive_file 50\nactive_file 250\n",
    })  # fmt: skip
    assert memory_left(root) == 400


@pytest.mark.parametrize("quota, cores", [(None, 8), (0.5, 1), (1.5, 2), (64.0, 8)])
def test_threads_follow_the_quota_and_the_affinity_mask(monkeypatch, quota, cores):
    limited_to(monkeypatch, quota)
    assert machine.usable_cores() == cores
    environment = {}
    machine.choose_openmp(environment)
    assert environment.get("OMP_NUM_THREADS") == (str(cores) if cores < 8 else None)
    assert environment["GOMP_SPINCOUNT"] == machine.SPINS


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
    machine.choose_openmp(environment)
    assert environment[name] == value
    spins = machine.SPINS if name == "OMP_NUM_THREADS" else environment.get(name)
    assert environment.get("GOMP_SPINCOUNT") in (None, spins)


def test_a_child_process_chooses_again_by_its_own_limits(monkeypatch):
    limited_to(monkeypatch, 2.0)
    environment = {}
    machine.choose_openmp(environment)
    limited_to(monkeypatch, 4.0)
    machine.choose_openmp(environment)
    assert environment["OMP_NUM_THREADS"] == "4"


def test_workers_share_the_cores_and_keep_their_share(monkeypatch):
    limited_to(monkeypatch, 4.0)
    environment = {}
    machine.choose_openmp(environment)
    machine.share_cores(environment, 2)
    machine.choose_openmp(environment)  # in the worker
    assert (environment["OMP_NUM_THREADS"], environment["GOMP_SPINCOUNT"]) == ("2", machine.SPINS)
    of_user = {"OMP_NUM_THREADS": "3"}
    machine.share_cores(of_user, 2)
    assert of_user["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(("processes", "threads"), [(1, "4"), (2, "2"), (8, "1")])
def test_the_processes_of_a_job_on_ray_share_the_reserved_cores(monkeypatch, processes, threads):
    monkeypatch.setattr("zoerefine.base.machine.cores.usable_cores", lambda: 12)
    monkeypatch.setattr("zoerefine.base.machine.cores.visible_cores", lambda: 12)
    environment = {"OMP_NUM_THREADS": "4"}  # as Ray sets it
    machine.choose_openmp(environment)
    machine.use_reserved_cores(environment, 4)
    machine.choose_openmp(environment)  # in the launcher
    assert environment["OMP_NUM_THREADS"] == "4"
    machine.share_cores(environment, processes)
    assert environment["OMP_NUM_THREADS"] == threads
    of_user = {"OMP_NUM_THREADS": "3"}
    machine.use_reserved_cores(of_user, 4)
    machine.share_cores(of_user, 2)
    assert of_user["OMP_NUM_THREADS"] == "3"


def test_every_entry_chooses_before_torch_is_loaded():
    code = ("import os, sys, zoerefine\n"
            "assert 'torch' not in sys.modules\n"
            "print(os.environ['GOMP_SPINCOUNT'])")  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP", "GOMP", "ZOE"))}
    assert run_new_python(code, env=environment).stdout.strip() == machine.SPINS


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
