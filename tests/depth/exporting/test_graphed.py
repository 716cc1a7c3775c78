"""Calls of an engine as CUDA graphs are right in every order that a GPU's streams may take.

The GPU is simulated, and fails where a real one would. Every mutant is the real file with one step
removed or changed, and must be found.
"""

import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.depth.exporting.simulated_cuda import JUNK, Event, SimulatedCuda, Stream, refuse
from tests.depth.exporting.sources import untrained_source
from tests.depth.mutants import mutant_of
from tests.depth.training.test_hidden_waits import META, waits
from zoerefine.base.registries import NETWORKS
from zoerefine.depth.exporting import graphed

SCHEDULES = [("main", 0), ("side", 0), *(("any", seed) for seed in range(40))]
CALLS = 40
DEVICE = "cuda:1"

WAIT = "            stream.wait_event(self.done)\n"
MUTANTS = {
    "a call does not wait for the one before": (WAIT, ""),
    "a call is never marked as done": ("            self.done.record(stream)\n", ""),
    "memory of a graph is left while another stream uses it": (
        "                self.done.synchronize()  # other streams may still use its memory\n",
        "                pass\n",
    ),
    "the outputs are the graph's own": (
        "[output.clone() for output in self.outputs]", "self.outputs"
    ),
    "the inputs are not copied": (
        "            own.copy_(given, non_blocking=True)\n", "            pass\n"
    ),
    "the capture reads the caller's inputs": (
        "outputs = self.plain(*own)", "outputs = self.plain(*inputs)"
    ),
    "a graph is of any shape": ("key = tuple(one.shape for one in inputs)", "key = ()"),
    "the capture is of the caller's stream": (
        "torch.cuda.current_stream(), self.side", "[torch.cuda.current_stream()] * 2"
    ),
    "what a thread loads at its first call is captured": ("WARM_UP = 2", "WARM_UP = 0"),
    "a wait of another thread ends the capture": (', "thread_local"', ""),
    "under a caller's capture a graph is replayed": (
        "            if torch.cuda.is_current_stream_capturing():\n"
        "                self.most = 0\n"
        "                return self.plain(*inputs)\n",
        "",
    ),
    "after a failed capture its stream is the current one": (
        "with ONE_CAPTURE, torch.cuda.stream(side):", "with ONE_CAPTURE:"
    ),
    "calls do not wait for the stream of the capture": (
        "            caller.wait_stream(side)\n", "            pass\n"
    ),
    "the stream of the capture does not wait for calls": ("        side.wait_stream(caller)\n", ""),
    "a graph with other bits is replayed": (
        "if not all(same_bits(outputs, plain) for plain in expected):", "if False:"
    ),
    "two captures at a time": ("with ONE_CAPTURE, ", "with "),
    "the GPU is that of the thread": ("with torch.cuda.device(self.device), ", "with "),
}  # fmt: skip


class Calls:
    """An engine: 1000 times the picture plus the depth, and one more.

    Its first call in a thread loads something, which cannot be captured.

    Args:
        context: as TensorRT has it: calls share scratch memory, and a call of another shape changes
            what a graph uses.
        captured: False for one that waits for the GPU.
        replayed: what is added to its outputs in a replay; 0 for every sound engine.
        most: calls on another stream than the callers', for which there is memory.
    """

    def __init__(self, gpu, context=False, captured=True, most=99, replayed=0):
        self.gpu, self.captured, self.loaded, self.rows = gpu, captured, set(), 0
        self.replayed = replayed
        self.callers, self.most = list(gpu.streams), most
        self.scratch = gpu.empty((9,), "float", DEVICE) if context else None

    def __call__(self, rgb, zoe):
        gpu, [rows] = self.gpu, rgb.shape
        capture = gpu.capturing(gpu.current())
        if capture and (not self.captured or threading.get_ident() not in self.loaded):
            gpu.synchronize()
        self.loaded.add(threading.get_ident())
        if gpu.current() not in self.callers:
            self.most -= 1
            refuse(self.most < 0, "out of memory")
        if self.scratch:
            self.rows = rows
            if capture:
                capture.at_launch.append(lambda: refuse(self.rows != rows, "context has changed"))
        scratch = self.scratch or gpu.empty((rows,), "float", DEVICE)
        more = self.replayed if capture else 0
        scratch.compute(lambda value: value * 1000 + more, rgb, rows=rows)
        depth = gpu.empty((rows,), "uint16", DEVICE).compute(lambda a, b: a + b, scratch, zoe)
        return [depth, gpu.empty((rows,), "uint16", DEVICE).compute(lambda a: a + 1, depth)]


class World:
    """Two threads call engines on three streams, with pictures of several shapes."""

    def __init__(self, module, monkeypatch, schedule, shapes=2, **engine):
        self.gpu = SimulatedCuda(*schedule)
        monkeypatch.setattr(module, "torch", self.gpu)
        self.random = random.Random(str(schedule))
        self.streams = [self.gpu.main, Stream(self.gpu), Stream(self.gpu)]
        self.threads = [ThreadPoolExecutor(1) for _ in range(2)]
        self.make = lambda: module.GraphedForward(Calls(self.gpu, **engine), shapes, DEVICE)
        self.forward = self.make()
        self.found = {}

    def call(self, number, rows, stream, forward=None):
        """One call; what it returned is read at some time later."""
        gpu = self.gpu
        with gpu.stream(stream):
            rgb, zoe = (gpu.empty((rows,), kind, DEVICE) for kind in ("uint8", "uint16"))
            rgb.compute(lambda: number)
            zoe.compute(lambda: number + 500)
            outputs = (forward or self.forward)(rgb, zoe)
            self.found[number] = rows, [output.read() for output in outputs]
            del rgb, zoe, outputs
            # The next tensors get the memory that is left now.
            for _ in range(4):
                gpu.empty((rows,), "any", DEVICE).compute(lambda: JUNK)

    def calls(self, count):
        for number in range(count):
            rows, stream = self.random.choice([1, 2, 2, 2, 3, 4]), self.random.choice(self.streams)
            self.random.choice(self.threads).submit(self.call, number, rows, stream).result()
            self.gpu.run_some()
        self.gpu.finish()

    def wrong(self):
        """The numbers of calls whose outputs were wrong."""
        return [
            number for number, (rows, outputs) in self.found.items()
            if outputs != [[number * 1001 + 500 + k] * rows for k in range(2)]
        ]  # fmt: skip


def many_calls(module, monkeypatch, schedule, **engine):
    """Whether many calls are right, while another thread waits for the GPU in every capture."""
    world = World(module, monkeypatch, schedule, **engine)
    waiting = ThreadPoolExecutor(1)
    world.gpu.during_capture = lambda: waiting.submit(Event(world.gpu, True).synchronize).result()
    world.calls(CALLS)
    return world.wrong() == []


def of_a_context(module, monkeypatch, schedule):
    return many_calls(module, monkeypatch, schedule, shapes=1, context=True)


def with_one_warning(module, monkeypatch, schedule, words, **engine):
    """Whether calls are right, and there is one warning, with these words."""
    world = World(module, monkeypatch, schedule, **engine)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        world.calls(CALLS)
    assert [words in str(one.message) for one in found] == [True]
    return world.wrong() == []


def not_captured(module, monkeypatch, schedule):
    words = "stream is capturing"
    return with_one_warning(module, monkeypatch, schedule, words, captured=False)


def other_bits(module, monkeypatch, schedule):
    """A replay gives other bits than a plain call."""
    words = "outputs are not those of plain calls"
    return with_one_warning(module, monkeypatch, schedule, words, replayed=1)


def no_memory(module, monkeypatch, schedule):
    """Whether calls are right where there is no memory for the second call before a capture."""
    world = World(module, monkeypatch, schedule, context=True, most=1)
    for engine in range(4):
        world.forward = world.make()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for number in range(6):
                world.call(10 * engine + number, 4, world.streams[1])
        assert ["out of memory" in str(one.message) for one in found] == [True]
        world.gpu.finish()
    return world.wrong() == []


def in_a_callers_graph(module, monkeypatch, schedule):
    """Whether a caller can capture a call whose shape has a graph already, and replay it."""
    world = World(module, monkeypatch, schedule)
    gpu, side = world.gpu, world.streams[1]
    for number in range(5):
        world.call(number, 2, gpu.main)
    rgb, zoe = (gpu.empty((2,), kind, DEVICE) for kind in ("uint8", "uint16"))
    graph = gpu.CUDAGraph()
    with gpu.graph(graph, object(), side):
        outputs = world.forward(rgb, zoe)
    for number in range(5, 9):
        rgb.compute(lambda number=number: number)
        zoe.compute(lambda number=number: number + 500)
        graph.replay()
        world.found[number] = 2, [output.read() for output in outputs]
        world.call(number + 10, 2, gpu.main)
    gpu.finish()
    assert [one.graph for one in world.forward.shapes.values()] == []
    return world.wrong() == []


def is_asleep(thread):
    """Whether a thread of this process waits, e.g. for a lock."""
    return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def in_two_threads(module, monkeypatch, schedule):
    """Whether an engine can be captured while another one is."""
    world = World(module, monkeypatch, schedule)
    world.streams += [Stream(world.gpu)]
    other, begun = world.make(), []

    def capture_the_other():
        world.gpu.during_capture = lambda: None
        thread = world.threads[1].submit(threading.get_native_id).result()
        begun.extend(
            world.threads[1].submit(world.call, number, 2, world.streams[2], other)
            for number in range(10, 15)
        )
        asleep = 0  # looks in a row; one that waits for a core is not asleep
        while asleep < 5 and not all(one.done() for one in begun):
            asleep = asleep + 1 if is_asleep(thread) else 0
            threading.Event().wait(0.02)

    world.gpu.during_capture = capture_the_other
    for number in range(5):
        world.threads[0].submit(world.call, number, 2, world.streams[1]).result()
    for one in begun:
        one.result()
    world.gpu.finish()
    assert len(world.found) == 10
    return world.wrong() == []


SCENES = [many_calls, of_a_context, not_captured, other_bits, no_memory, in_a_callers_graph]


def is_right(scene, module, monkeypatch, schedule):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return scene(module, monkeypatch, schedule)
    except (AssertionError, RuntimeError, IndexError, UserWarning):
        return False


@pytest.mark.parametrize("scene", SCENES)
def test_every_call_is_right_in_every_order_of_the_streams(monkeypatch, scene):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrong = [one for one in SCHEDULES if not scene(graphed, monkeypatch, one)]
    assert wrong == []


def test_two_engines_are_captured_one_after_the_other(monkeypatch):
    assert in_two_threads(graphed, monkeypatch, SCHEDULES[0])


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_protocol_is_found(tmp_path, monkeypatch, mutant):
    module = mutant_of(graphed, dict([MUTANTS[mutant]]), tmp_path, monkeypatch)
    scenes = [in_two_threads] if mutant.startswith("two captures") else SCENES
    assert not all(is_right(scene, module, monkeypatch, one) for one in SCHEDULES
                   for scene in scenes)  # fmt: skip


def test_a_context_with_two_graphs_is_found(monkeypatch):
    two = partial(many_calls, shapes=2, context=True)
    assert not is_right(two, graphed, monkeypatch, SCHEDULES[0])


def captures(monkeypatch, most, shapes):
    """How many captures calls with these shapes make, one after the other."""
    world = World(graphed, monkeypatch, SCHEDULES[0], most)
    found = []
    world.gpu.during_capture = lambda: found.append(1)
    for number, rows in enumerate(shapes):
        world.call(number, rows, world.gpu.main)
    world.gpu.finish()
    assert world.wrong() == []
    assert len(world.forward.shapes) <= most
    return len(found)


def test_a_shape_is_captured_once_and_shapes_that_alternate_too_much_never(monkeypatch):
    assert captures(monkeypatch, 2, [1, 2] * 8) == 2
    assert captures(monkeypatch, 2, [1] * 8 + [2] * 8 + [3] * 8 + [1] * 8) == 4
    assert captures(monkeypatch, 2, [1, 2, 3] * 8) == 0


@pytest.mark.parametrize("size", [(24, 32), (30, 40)])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_bundles_call_has_nothing_that_a_capture_refuses(monkeypatch, network, precision, size):
    """On `meta` tensors: it asks for no value, and copies nothing from the CPU."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # it does not know `meta`
    source = untrained_source(network, BASE=8)
    shipped = source.shipped(source.core(precision)).eval().to(META)
    rgb = torch.empty(2, *size, 3, dtype=torch.uint8, device=META)
    zoe = torch.empty(2, *size, dtype=torch.uint16, device=META)
    with torch.inference_mode():
        assert waits(lambda: shipped(rgb, zoe)) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_on_a_gpu_replayed_calls_have_the_same_bits():
    def plain(rgb_u8, zoe_u16):
        total = zoe_u16.int() + rgb_u8[..., 0].int()
        return [total.to(torch.uint16), (total * 2).to(torch.uint16)]

    device = torch.device("cuda", torch.cuda.current_device())
    forward = graphed.GraphedForward(plain, 2, device)
    for number in range(8):
        rgb = torch.randint(0, 255, (1 + number % 2, 8, 9, 3), device=device, dtype=torch.uint8)
        zoe = torch.randint(0, 9000, rgb.shape[:3], device=device).to(torch.uint16)
        for one, other in zip(forward(rgb, zoe), plain(rgb, zoe), strict=True):
            assert torch.equal(one.int(), other.int())
    assert all(one.graph for one in forward.shapes.values())
