"""The prefetcher's slots under every order that a GPU's streams may take: no batch is wrong.

The GPU is simulated. The same check finds each way in which the protocol could be broken: every
mutant is the real file with one wait removed or moved.
"""

from types import SimpleNamespace

import pytest

from tests.depth.data.simulated_gpu import OLD, SimulatedGPU
from tests.depth.mutants import mutant_of
from zoerefine.base.threads import NoTimeline
from zoerefine.depth.data.loading import prefetch

BATCHES, ROWS = 10, 3
SCHEDULES = [("main", 0), ("side", 0), *(("any", seed) for seed in range(60))]

RECORD = "            slot.consumed.record(stream)\n"
CONVERT = "            batch = self._convert(slot.batch)\n"
MUTANTS = {
    "a copy does not wait until its slot was read": (
        "        stream.wait_event(self.consumed)\n",
        "",
    ),
    "a slot is never marked as read": (RECORD, ""),
    "a slot is marked as read before it is": (CONVERT + RECORD, RECORD + CONVERT),
    "a slot does not wait for earlier users of its memory": (
        "        self.consumed.record(torch.cuda.current_stream(device))\n",
        "",
    ),
    "the loader's buffer is free before it was copied": (
        "        self.copied.synchronize()\n",
        "        self.begun.elapsed_time = lambda end: 1.0\n",
    ),
    "neither the main stream nor the CPU waits for the copy": (
        "        self.copied.record(stream)\n",
        "        self.begun.elapsed_time = lambda end: 1.0\n",
    ),
}


class Rewritten(list):
    """The loader's one buffer. It is cleared before each batch: the batch before is not valid."""

    def __len__(self):
        return ROWS


class OneBufferLoader:
    """Batch k has the value k in every row."""

    world = 1
    timeline = NoTimeline()
    sampler = SimpleNamespace(batch=ROWS)
    cache = SimpleNamespace(records=None, stride=8)

    def __iter__(self):
        buffer = Rewritten([None] * ROWS)
        for number in range(BATCHES):
            buffer[:] = [None] * ROWS
            buffer[:] = [number] * ROWS
            yield SimpleNamespace(
                rows=buffer, index=SimpleNamespace(clone=lambda n=number: n), fields=()
            )


def wrong_schedules(module, monkeypatch):
    """The schedules in which a batch, or what earlier work read, is wrong."""
    return [one for one in SCHEDULES if not is_right(module, *one, monkeypatch)]


def is_right(module, prefers, seed, monkeypatch):
    gpu = SimulatedGPU(prefers, seed)
    monkeypatch.setattr(module, "torch", gpu)

    class Reading(module.Prefetcher):
        def _convert(self, batch):
            return batch.rows.read(gpu.main)

    found = []
    device = SimpleNamespace(type="cuda")
    for batch in Reading(OneBufferLoader(), device):
        found.append(batch)
        gpu.run_some()
    gpu.finish()
    assert len(found) == BATCHES
    return found == [[k] * ROWS for k in range(BATCHES)] and all(
        values == [OLD] * ROWS for values in gpu.earlier
    )


def test_every_batch_is_right_in_every_order_of_the_streams(monkeypatch):
    assert wrong_schedules(prefetch, monkeypatch) == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_protocol_is_found(tmp_path, monkeypatch, mutant):
    module = mutant_of(prefetch, dict([MUTANTS[mutant]]), tmp_path, monkeypatch)
    wrong = wrong_schedules(module, monkeypatch)
    # These two orders are the same at every run; the others also depend on Python's threads.
    assert {("main", 0), ("side", 0)} & set(wrong)
