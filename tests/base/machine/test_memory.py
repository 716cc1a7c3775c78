"""Memory that is freed and needed again."""

import os
import platform

import pytest

from tests.processes import run_new_python
from zoerefine.base.machine import memory

PROGRAM = """
import resource, threading
import numpy as np
from zoerefine.base.machine.memory import keep_freed_memory

def work(rounds):
    for _ in range(rounds):
        arrays = [np.ones(2**20, np.uint8) for _ in range(8)]

def faults_of_a_thread():
    work(5)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    work(20)
    print(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

keep_freed_memory()
thread = threading.Thread(target=faults_of_a_thread)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these limits")
def test_memory_that_was_freed_is_not_cleared_again():
    pages_of_one_round = 8 * 2**20 // 4096
    assert int(run_new_python(PROGRAM).stdout) < pages_of_one_round


def test_free_memory_is_known_without_proc(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "MEMORY_INFO", tmp_path / "absent")
    assert 0 < memory.free_memory() <= os.sysconf("SC_PHYS_PAGES") * memory.PAGE
