"""torch.cuda with streams, an allocator and graphs, simulated: it fails where the real one would.

Work is queued on streams and runs a row at a time, in any order that the events leave open. Memory
that a tensor leaves goes to the next tensor of its stream, while other streams may still use it. A
capture records work with the memory that it uses; a replay uses that memory, whatever it holds now.

What is refused is what these refuse: `torch/cuda/graphs.py` and CUDAGraph.cpp of torch 2.13, and
"Prohibited and Unhandled Operations" of CUDA's programming guide.
"""

import threading
import weakref
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

from tests.depth.data import simulated_gpu

JUNK = float("nan")  # of memory that nobody wrote


class SimulatedCuda(simulated_gpu.SimulatedGPU):
    """Takes the place of the name `torch` in zoerefine/depth/exporting/graphed.py.

    Attributes:
        during_capture: called in the midst of every capture, as another thread would.
    """

    inference_mode = nullcontext
    int16 = "int16"

    def __init__(self, prefers, seed=0):
        super().__init__(prefers, seed)
        self.capture = None
        self.spare = {}  # blocks without a tensor, by stream (or stream and pool) and size
        self.during_capture = lambda: None
        self.main = Stream(self)

    # What graphed.py asks of torch

    def empty(self, shape, dtype, device):
        return Tensor(self, shape, dtype)

    def equal(self, one, other):
        """Waits for the current stream, as every question for a value does."""
        event = Event(self, True)
        event.record(self.current())
        event.synchronize()
        return one.block.values == other.block.values

    def Stream(self, device):
        return Stream(self)

    def Event(self, blocking):
        return Event(self, blocking)

    def CUDAGraph(self):
        return Graph(self)

    def graph_pool_handle(self):
        return object()

    def current_stream(self):
        assert getattr(self.thread, "device", None) == "cuda:1", "the stream of another GPU"
        return self.current()

    def is_current_stream_capturing(self):
        return self.capturing(self.current_stream()) is not None

    @contextmanager
    def device(self, device):
        before = getattr(self.thread, "device", None)
        self.thread.device = device
        yield
        self.thread.device = before

    @contextmanager
    def stream(self, stream):
        before = self.current()
        self.thread.stream = stream
        try:
            yield
        finally:
            self.thread.stream = before

    @contextmanager
    def graph(self, graph, pool, stream, mode="global"):
        self.synchronize()
        outer, self.thread.stream = self.current(), stream
        refuse(stream is self.main, "CUDA graphs must be captured on a non-default stream")
        self.capture = Capture(graph, pool, stream, mode, threading.get_ident())
        self.during_capture()
        try:
            yield
        finally:
            capture, self.capture = self.capture, None
            refuse(self.current() is not stream, "Capture must end on the same stream it began on")
            # As torch: if this raises, the current stream stays that of the capture.
            refuse(capture.invalid, "operation failed due to a previous error during capture")
            self.thread.stream = outer
        graph.work, graph.at_launch = capture.work, capture.at_launch

    # The rest of the machine

    def capturing(self, stream):
        """The capture that a stream's work becomes part of; None: it will run."""
        capture = self.capture
        return capture if capture and capture.stream is stream else None

    def current(self):
        return getattr(self.thread, "stream", self.main)

    def synchronize(self):
        """Of the device: refused while any of its streams is captured."""
        if self.capture:
            self.capture.invalid = True
        refuse(self.capture, "operation not permitted when stream is capturing")
        while self.run_a_step():
            pass

    def block_for(self, size):
        """Memory for a tensor of the current stream: what was left there, else new."""
        stream = self.current()
        capture = self.capturing(stream)
        home = (stream, capture and capture.pool, size)
        spare = self.spare.setdefault(home, [])
        return spare.pop() if spare else SimpleNamespace(values=[JUNK] * size, home=home)


class Capture(SimpleNamespace):
    """A capture in work.

    Attributes:
        at_launch: called when the graph is launched.
    """

    def __init__(self, graph, pool, stream, mode, thread):
        assert mode in ("global", "thread_local")
        super().__init__(graph=graph, pool=pool, stream=stream, mode=mode, thread=thread,
                         invalid=False, work=[], at_launch=[])  # fmt: skip

    def forbids_waits(self):
        return self.mode == "global" or self.thread == threading.get_ident()


class Graph:
    """torch.cuda.CUDAGraph."""

    def __init__(self, gpu):
        self.gpu, self.work = gpu, None

    def replay(self):
        refuse(self.work is None, "Called CUDAGraph::replay without a preceding successful capture")
        stream = self.gpu.current()
        refuse(self.gpu.capturing(stream), "operation not permitted when stream is capturing")
        for launched in self.at_launch:
            launched()
        for act in self.work:
            stream.add(act)


class Stream(simulated_gpu.Stream):
    """Work of a captured stream is recorded, and does not run."""

    def __init__(self, gpu):
        super().__init__(gpu)
        self.speed = gpu.random.choice([0.1, 1])

    def add(self, act, condition=None):
        capture = self.gpu.capturing(self)
        if not capture:
            super().add(act, condition or (lambda: True))
        elif condition:
            capture.invalid = True
            refuse(True, "dependency created on uncaptured work in another stream")
        else:
            capture.work.append(act)

    def wait_stream(self, other):
        event = Event(self.gpu, False)
        event.record(other)
        self.wait_event(event)


class Event(simulated_gpu.Event):
    """Waiting for it is refused in a capture."""

    def synchronize(self):
        capture = self.gpu.capture
        if capture and capture.forbids_waits():
            capture.invalid = True
            refuse(True, "operation not permitted when stream is capturing")
        super().synchronize()


class Tensor:
    """Numbers in rows on the simulated GPU."""

    device = "cuda:1"

    def __init__(self, gpu, shape, dtype):
        self.gpu, self.shape, self.dtype = gpu, shape, dtype
        self.block = gpu.block_for(shape[0])
        weakref.finalize(self, gpu.spare[self.block.home].append, self.block)

    def compute(self, function, *others, rows=None):
        """Queue `function` of the others' rows for each row of this tensor, or its first ones."""
        own, blocks = self.block, [other.block for other in others]
        for row in range(rows or self.shape[0]):

            def act(row=row):
                own.values[row] = function(*(block.values[row] for block in blocks))

            self.gpu.current().add(act)
        return self

    def copy_(self, other, non_blocking=False):
        return self.compute(lambda value: value, other)

    def view(self, dtype):
        return self

    def clone(self):
        return Tensor(self.gpu, self.shape, self.dtype).copy_(self)

    def read(self):
        """Queue the reading; the list is filled when it runs."""
        found, block = [None] * self.shape[0], self.block
        for row in range(self.shape[0]):
            self.gpu.current().add(lambda row=row: found.__setitem__(row, block.values[row]))
        return found


def refuse(where, message):
    if where:
        raise RuntimeError(f"CUDA error: {message}")
