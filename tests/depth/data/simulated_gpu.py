"""A GPU for the prefetcher, simulated: streams that run their work whenever an adversary likes.

Work is queued on a stream and runs later, one step at a time. Between two steps any other stream
may run, so that everything that the events do not order happens in every order.
"""

import random
import threading
from contextlib import contextmanager

OLD = "memory of earlier work"


class SimulatedGPU:
    """Takes the place of the name `torch` in zoerefine/depth/data/loading/prefetch.py.

    Args:
        prefers: which stream runs when several can: "main", "side", or any at random.
    """

    int64 = "int64"

    def __init__(self, prefers, seed=0):
        self.prefers, self.random = prefers, random.Random(seed)
        self.lock = threading.RLock()
        self.streams = []
        self.main = Stream(self)
        self.thread = threading.local()
        self.earlier = []  # what earlier work, still queued, reads from the memory of the slots
        self.cuda = self

    def empty(self, shape, dtype, device):
        """Memory that earlier work of the main stream still reads, as the allocator gives it."""
        memory = Memory(self, [OLD] * shape[0])
        self.main.add(lambda: self.earlier.append(list(memory.values)))
        return memory

    def current_stream(self, device):
        return self.main

    def Stream(self, device):
        return Stream(self)

    def Event(self, enable_timing=False, blocking=False):
        return Event(self, blocking)

    @contextmanager
    def stream(self, stream):
        self.thread.stream = stream
        yield

    def run_a_step(self):
        """One step of one stream; False if none can run."""
        with self.lock:
            ready = [stream for stream in self.streams if stream.ready()]
            if not ready:
                return False
            if self.prefers == "main":
                stream = ready[0]
            elif self.prefers == "side":
                stream = ready[-1]
            else:
                stream = self.random.choices(ready, [one.speed for one in ready])[0]
            stream.work.pop(0)[1]()
            return True

    def run_some(self):
        """A random number of steps, as if the CPU had been slow."""
        for _ in range(self.random.choice([0, 0, 3, 30])):
            self.run_a_step()

    def finish(self):
        """Run everything that is queued."""
        while self.run_a_step():
            pass
        assert not any(stream.work for stream in self.streams), "a stream waits for ever"


class Stream:
    """Queued work, each with the condition on which it may run."""

    def __init__(self, gpu):
        self.gpu, self.work, self.speed = gpu, [], 1
        gpu.streams.append(self)

    def add(self, act, condition=lambda: True):
        with self.gpu.lock:
            self.work.append((condition, act))

    def ready(self):
        return bool(self.work) and self.work[0][0]()

    def wait_event(self, event):
        number = event.recorded
        self.add(lambda: None, lambda: event.reached >= number)


class Event:
    """The last record that was queued, and the last one that was reached."""

    def __init__(self, gpu, blocking):
        self.gpu, self.blocking = gpu, blocking
        self.recorded = self.reached = 0

    def record(self, stream):
        self.recorded += 1
        number = self.recorded
        stream.add(lambda: setattr(self, "reached", number))

    def synchronize(self):
        assert self.blocking, "waiting for an event that is not blocking occupies a CPU core"
        while self.reached < self.recorded:
            # Another thread may have run the last step since the event was looked at.
            ran = self.gpu.run_a_step() or self.reached >= self.recorded
            assert ran, "the CPU waits for ever"

    def elapsed_time(self, end):
        assert end.reached == end.recorded, "the time of an event that was not reached"
        return 1.0


class Memory:
    """Rows on the device."""

    def __init__(self, gpu, values):
        self.gpu, self.values = gpu, values

    def __getitem__(self, rows):
        return Rows(self, rows.stop)


class Rows:
    """The first rows of a memory."""

    def __init__(self, memory, count):
        self.memory, self.count = memory, count

    def copy_(self, source, non_blocking):
        """Queue the copy, a row at a time; the source is read when a row is copied."""
        assert non_blocking
        stream = self.memory.gpu.thread.stream
        for row in range(self.count):
            stream.add(lambda row=row: self.memory.values.__setitem__(row, source[row]))

    def read(self, stream):
        """Queue the reading, a row at a time; the list is filled when it runs."""
        found = [None] * self.count
        for row in range(self.count):
            stream.add(lambda row=row: found.__setitem__(row, self.memory.values[row]))
        return found
