"""Limits of containers: control groups of version 1 and 2."""

from tests.foreign import write_files
from zoerefine.base.machine.container import cpu_quota, memory_left


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
