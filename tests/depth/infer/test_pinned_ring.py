"""Pinned memory is used again only after the GPU and the reader have finished with it.

The GPU is simulated: queued work runs at once, as late as possible, or at random times. Every
mutant is the real file with one step removed or moved, and must be found.
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from tests.depth.mutants import mutant_of
from zoerefine.base.errors import UserError
from zoerefine.base.machine.memory import PAGE
from zoerefine.depth.exporting import pinned
from zoerefine.depth.exporting.engine import Engine
from zoerefine.depth.infer.pipeline import EngineThreads
from zoerefine.depth.infer.refiner import Refiner

SCHEDULES = ["at once", "as late as possible", *range(20)]
BATCHES, SLOTS = 12, 3

RECORD = "        self.done.record(torch.cuda.current_stream(device))\n"
OUTPUTS = "            self.outputs = [\n"
MUTANTS = {
    "results are read before they are there": {"        self.done.synchronize()\n": ""},
    "results are the slot's memory": {".numpy().copy()": ".numpy()"},
    "the event comes before the copy of the results": {
        RECORD: "",
        OUTPUTS: "    " + RECORD + OUTPUTS,
    },
    "the inputs share one memory": {'f"input {k}"': '"input"'},
}


class SimulatedGPU:
    """Takes the place of the name `torch` in pinned.py: one stream, and pinned memory."""

    uint8, from_numpy = torch.uint8, staticmethod(torch.from_numpy)
    inference_mode, device = nullcontext, torch.device

    def __init__(self, schedule):
        self.schedule, self.random = schedule, random.Random(str(schedule))
        self.work, self.lock = [], threading.RLock()
        self.cuda = self

    def empty(self, size, dtype, pin_memory, device):
        assert pin_memory and device == "cpu"
        memory = torch.full((size,), 0xEE, dtype=dtype).as_subclass(Pinned)
        Pinned.gpu = self
        return memory

    def Event(self, blocking):
        return Event(self, blocking)

    def current_stream(self, device):
        assert str(device) == "cuda"
        return self

    def add(self, act):
        with self.lock:
            self.work.append(act)
            steps = {"at once": 99, "as late as possible": 0}.get(self.schedule)
            self.run(self.random.choice([0, 0, 1, 5]) if steps is None else steps)

    def run(self, steps):
        with self.lock:
            for act in [self.work.pop(0) for _ in range(min(steps, len(self.work)))]:
                act()


class Event:
    def __init__(self, gpu, sleeps):
        self.gpu, self.sleeps, self.recorded, self.reached = gpu, sleeps, 0, 0

    def record(self, stream):
        assert stream is self.gpu
        self.recorded += 1
        number = self.recorded
        self.gpu.add(lambda: setattr(self, "reached", number))

    def synchronize(self):
        while self.reached < self.recorded:
            self.gpu.run(1)


class Pinned(torch.Tensor):
    """Host memory whose copies are only queued."""

    def to(self, device, non_blocking):
        assert str(device) == "cuda" and non_blocking
        source = self.as_subclass(torch.Tensor)
        copy = torch.empty(source.shape, dtype=source.dtype)
        self.gpu.add(lambda: copy.copy_(source))
        return copy

    def copy_(self, source, non_blocking):
        assert non_blocking
        memory = self.as_subclass(torch.Tensor)
        self.gpu.add(lambda: memory.copy_(source))
        return self


class QueueingEngine:
    """Two outputs: pseudo depth plus the picture's red, and its double."""

    device, parallel_calls, has_confidence = "cuda", 1, True

    def __init__(self, gpu):
        self.gpu = gpu

    def require_confidence(self):
        pass

    def outputs(self, rgb_u8, zoe_u16):
        found = [torch.empty_like(zoe_u16) for _ in range(2)]

        def compute():
            total = zoe_u16.int() + rgb_u8[..., 0].int()
            for factor, output in enumerate(found, 1):
                output.copy_(total * factor)

        self.gpu.add(compute)
        return found


def batch(number):
    """Pictures and depth of a size that changes from batch to batch."""
    rng = np.random.default_rng(number)
    count, height, width = rng.integers(1, 6, 3)
    rgb = rng.integers(0, 256, (count, height, width, 3)).astype(np.uint8)
    zoe = rng.integers(0, 9000, (count, height, width)).astype(np.uint16)
    return list(rgb), list(zoe)


def is_right(found, number):
    rgb, zoe = batch(number)
    total = np.stack(zoe) + np.stack(rgb)[..., 0]
    return len(found) == 2 and all(
        values.dtype == np.uint16 and np.array_equal(values, total * factor)
        for factor, values in enumerate(found, 1)
    )


@pytest.fixture
def simulate(monkeypatch):
    """A QueueingEngine on a simulated GPU: simulate(schedule), or with a mutant of pinned.py."""

    def make(schedule, module=pinned):
        gpu = SimulatedGPU(schedule)
        monkeypatch.setattr(module, "torch", gpu)
        return QueueingEngine(gpu)

    return make


def wrong_batches(engine, module=pinned):
    """Batches whose results are wrong at the end, with as many in work as there are slots."""
    calls = module.PinnedCalls(torch.device("cuda"), SLOTS)
    started, found = [], []
    for number in range(BATCHES):
        if len(started) == SLOTS:
            found.append(calls.collect(started.pop(0)))
        started.append(calls.start(engine.outputs, *batch(number)))
    found += [calls.collect(slot) for slot in started]
    return [number for number, outputs in enumerate(found) if not is_right(outputs, number)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_batch_is_right_whenever_the_gpu_runs(simulate, schedule):
    assert wrong_batches(simulate(schedule)) == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_protocol_is_found(simulate, tmp_path, monkeypatch, mutant):
    module = mutant_of(pinned, MUTANTS[mutant], tmp_path, monkeypatch)
    assert wrong_batches(simulate("as late as possible", module), module)


@pytest.mark.parametrize("schedule", SCHEDULES[:4])
def test_batches_are_right_through_the_threads_of_the_pipeline(simulate, schedule):
    engine = simulate(schedule)
    with EngineThreads(engine, outputs=2) as engines:
        futures = [
            engines.submit(*batch(number), lambda outputs, number=number: is_right(outputs, number))
            for number in range(BATCHES)
        ]
    assert [future.result() for future in futures] == [True] * BATCHES


def test_on_a_cpu_batches_are_stacked_in_aligned_memory():
    engine, offsets = QueueingEngine(None), []

    def noted(*arrays):
        offsets.extend(array.ctypes.data % PAGE for array in arrays)
        return list(arrays)

    engine.device, engine.arrays = "cpu", noted
    with EngineThreads(engine, outputs=2) as engines:
        for number in range(BATCHES):
            rgb, zoe = batch(number)
            stacked = engines.submit(rgb, zoe, list).result()
            np.testing.assert_array_equal(stacked[0], rgb)
            np.testing.assert_array_equal(stacked[1], zoe)
    assert offsets == [0] * (2 * BATCHES)


def test_a_start_waits_until_a_slot_is_free(simulate):
    engine = simulate("at once")
    calls = pinned.PinnedCalls(torch.device("cuda"), 1)
    slot = calls.free.get()
    assert slot.done.sleeps, "a wait that does not sleep occupies a CPU core"
    calls.free.put(slot)
    first = calls.start(engine.outputs, *batch(0))
    second = []
    thread = threading.Thread(target=lambda: second.append(calls.start(engine.outputs, *batch(1))))
    thread.start()
    thread.join(0.3)
    assert second == []
    assert is_right(calls.collect(first), 0)
    thread.join(30)
    assert is_right(calls.collect(second[0]), 1)


def test_a_batch_that_fails_gives_its_slot_back(simulate):
    simulate("at once")
    calls = pinned.PinnedCalls(torch.device("cuda"), 1)

    def fail(*_):
        raise UserError("the engine does not run")

    with pytest.raises(UserError):
        calls.start(fail, *batch(0))
    assert calls.free.qsize() == 1


def test_only_the_outputs_that_are_needed_are_copied(simulate):
    with EngineThreads(simulate("at once"), outputs=1) as engines:
        assert len(engines.submit(*batch(0), list).result()) == 1


@pytest.mark.parametrize("schedule", SCHEDULES[:6])
def test_calls_of_several_threads_have_memory_of_their_own(simulate, schedule):
    engine = simulate(schedule)
    calls = pinned.PinnedCalls(torch.device("cuda"))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda k: calls(engine.outputs, *batch(k)), range(BATCHES)))
    assert [number for number, one in enumerate(found) if not is_right(one, number)] == []
    assert calls.free.qsize() <= 4


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("frames", [(), (3,)])
def test_a_gpu_encodes_the_floats_of_arrays_as_the_cpu_does(simulate, monkeypatch, kind, frames):
    """Its call waits once, and what it does equals that of an engine on the CPU."""
    rng = np.random.default_rng(1)
    rgb = rng.integers(0, 256, (*frames, 4, 6, 3)).astype(np.uint8)
    zoe = np.ma.masked_less(rng.uniform(-1, 40, (*frames, 4, 6)).astype(kind), 1)
    on_cpu = Refiner(engine_of("cpu"))
    expected = [on_cpu(rgb, zoe), *on_cpu.with_confidence(rgb, zoe)]
    gpu = simulate("at once").gpu
    waits = []
    monkeypatch.setattr(Event, "synchronize", lambda event: waits.append(event.sleeps))
    refiner = Refiner(engine_of("cuda"))
    found = [refiner(rgb, zoe), *refiner.with_confidence(rgb, zoe)]
    assert (waits, gpu.work) == ([False, False], [])
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_array_equal(one, other)


def engine_of(device):
    """Its depth is the pseudo depth, its spread half of it."""

    def forward(rgb_u8, zoe_u16):
        return [zoe_u16, (zoe_u16.int() // 2).to(torch.uint16)]

    def on_arrays(rgb_u8, zoe_u16):
        return [zoe_u16, zoe_u16 // 2]

    manifest = {"outputs": {"depth": "", "spread": ""}}
    kind = OnSimulatedGPU if device == "cuda" else Engine
    return kind(forward, on_arrays, manifest, "", device, 1)


class OnSimulatedGPU(Engine):
    """Tensors are not moved to its device."""

    def outputs(self, rgb_u8, zoe_u16):
        return self.forward(rgb_u8, zoe_u16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_on_a_gpu_batches_are_right_through_the_threads():
    class OnGPU(QueueingEngine):
        def outputs(self, rgb_u8, zoe_u16):
            total = zoe_u16.int() + rgb_u8[..., 0].int()
            return [total.to(torch.uint16), (total * 2).to(torch.uint16)]

    with EngineThreads(OnGPU(None), outputs=2) as engines:
        futures = [
            engines.submit(*batch(number), lambda outputs, number=number: is_right(outputs, number))
            for number in range(BATCHES)
        ]
    assert [future.result() for future in futures] == [True] * BATCHES
