"""Many runs are read by a process for each core, since only one thread of Python parses."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from zoerefine.base.machine.cores import usable_cores

MANY = 500  # runs to read from which on several processes read them
CHUNK = 50  # runs that a process reads at a time

Item = TypeVar("Item")
Reading = TypeVar("Reading")


def read_many(read: Callable[[Item], Reading], items: Sequence[Item]) -> Iterator[Reading]:
    """What a function reads from each item, in their order. It can be pickled, and never raises."""
    if len(items) < MANY:
        yield from map(read, items)
        return
    with ProcessPoolExecutor(
        usable_cores(), multiprocessing.get_context("fork"), ignore_interrupt
    ) as pool:
        yield from pool.map(read, items, chunksize=CHUNK)


def ignore_interrupt() -> None:
    """Ctrl-C reaches every process; the one that started these ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
