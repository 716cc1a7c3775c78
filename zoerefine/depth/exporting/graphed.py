"""An engine's call on a GPU as one CUDA graph for each shape of its inputs.

A call queues many kernels, and starting them takes longer than computing them. A graph starts all:

    a shape's first calls   plain: libraries are loaded, fusers compile
    call CAPTURED_AT        plain calls on a side stream, then the capture, with inputs of its own;
                            a replay must give the bits of the plain calls
    from then on            copy the inputs to the graph's, replay, copy the outputs out

Callers may use several streams and threads. The event `done` orders all calls, because a graph's
memory, and that of a TensorRT context, belong to one call at a time.
"""

import warnings
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from zoerefine.depth.exporting.engine_kinds import Forward

CAPTURED_AT = 3  # which call of a shape
WARM_UP = 2  # calls on the stream of the capture; what is loaded lazily cannot be captured
ONE_CAPTURE = Lock()  # at a time in a process


@dataclass
class _Shape:
    """A shape of inputs: how often it was seen, and its graph."""

    calls: int = 0
    graph: "_Graph | None" = None


@dataclass(frozen=True)
class _Graph:
    """A captured call, with the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: list[Tensor]

    def replayed(self, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        """The outputs for other inputs of the same shapes, in memory of their own."""
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given, non_blocking=True)
        self.graph.replay()
        return [output.clone() for output in self.outputs]


class GraphedForward:
    """A forward function that replays a CUDA graph where it can.

    Under a caller's own capture it calls the engine, and makes no graphs from then on: the caller
    now manages its calls. An engine that cannot be captured, or whose graph gives other bits, is
    called as before, with a warning.

    Args:
        plain: the forward function.
        most: how many shapes may have a graph. A TensorRT context may have one: a call of another
            shape changes what its graph uses.
        device: of the engine, with its index.
    """

    def __init__(self, plain: Forward, most: int, device: torch.device) -> None:
        self.plain, self.most, self.device = plain, most, device
        self.shapes: OrderedDict[tuple[torch.Size, ...], _Shape] = OrderedDict()
        self.one_call = Lock()
        # `synchronize` of a blocking event sleeps, where others would occupy a CPU core.
        self.done = torch.cuda.Event(blocking=True)
        # Graphs share memory if they are captured on one stream.
        self.pool, self.side = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)

    def __call__(self, rgb_u8: Tensor, zoe_u16: Tensor) -> list[Tensor]:
        inputs = rgb_u8, zoe_u16
        with torch.cuda.device(self.device), torch.inference_mode(), self.one_call:
            if torch.cuda.is_current_stream_capturing():
                self.most = 0
                return self.plain(*inputs)
            stream = torch.cuda.current_stream()
            stream.wait_event(self.done)
            graph = self.graph_of(inputs)
            outputs = graph.replayed(inputs) if graph else self.plain(*inputs)
            self.done.record(stream)
            return outputs

    def graph_of(self, inputs: tuple[Tensor, ...]) -> _Graph | None:
        """The graph for inputs of these shapes, if there is one, or if it is time for it."""
        key = tuple(one.shape for one in inputs)
        shape = self.shapes.pop(key, None) or _Shape()
        self.shapes[key] = shape
        while len(self.shapes) > self.most:
            _, oldest = self.shapes.popitem(last=False)
            if oldest.graph:
                self.done.synchronize()  # other streams may still use its memory
        shape.calls += 1
        if shape.calls == CAPTURED_AT and self.most:
            shape.graph = self.captured(inputs)
        return shape.graph

    def captured(self, inputs: tuple[Tensor, ...]) -> _Graph | None:
        """A graph of the call; None, with a warning, if there is none, or with other bits."""
        caller, side = torch.cuda.current_stream(), self.side
        own = [torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in inputs]
        for memory, given in zip(own, inputs, strict=True):
            memory.copy_(given)
        graph = torch.cuda.CUDAGraph()
        side.wait_stream(caller)
        try:
            # torch.cuda.graph leaves its stream as the current one if the capture fails.
            with ONE_CAPTURE, torch.cuda.stream(side):
                expected = [self.plain(*own) for _ in range(WARM_UP)]
                # Calls of other threads are not part of this capture, and may go on.
                with torch.cuda.graph(graph, self.pool, side, "thread_local"):
                    outputs = self.plain(*own)
                graph.replay()
                if not all(same_bits(outputs, plain) for plain in expected):
                    raise RuntimeError("its outputs are not those of plain calls")
        except RuntimeError as error:
            self.most = 0
            # The end of a capture that failed raises again, and says less.
            first = error.__context__ if isinstance(error.__context__, RuntimeError) else error
            reason = (str(first).strip().splitlines() or [type(first).__name__])[0]
            warnings.warn(f"without a CUDA graph, each call takes longer: {reason}", stacklevel=2)
            return None
        finally:
            caller.wait_stream(side)
        return _Graph(graph, own, outputs)


def same_bits(outputs: list[Tensor], others: list[Tensor]) -> bool:
    """Whether uint16 tensors are equal. Waits for the GPU."""
    pairs = zip(outputs, others, strict=True)
    return all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in pairs)
