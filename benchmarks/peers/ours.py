"""zoerefine's loader, and the limit of memory: threads that copy rows into two buffers.

argv: folder of the packed cache, samples, threads, and a tier, or `aligned` or `usual`: the limit
with buffers that begin at a page, or where `np.empty` has them begin.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from side import BATCH, serve

from zoerefine.base.machine.memory import aligned_empty
from zoerefine.depth.data.cache.cache import WORD_BYTES, Cache, MappedRecords, open_cache
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.sampler import OrderOptions, Sampler
from zoerefine.depth.data.loading.tiers import place_records


def limit(cache: Cache, threads: int, buffers: list[np.ndarray]) -> Iterator[object]:
    """An epoch of whole-batch copies by threads that wait for nothing, two buffers for each."""
    assert isinstance(cache.records, MappedRecords)
    rows = cache.records.rows
    order = np.random.default_rng().permutation(len(rows))

    def copy(number: int) -> None:
        chunk = order[number * BATCH : (number + 1) * BATCH]
        np.take(rows, chunk, 0, out=buffers[number % len(buffers)][: len(chunk)], mode="clip")

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(copy, range(-(-len(order) // BATCH)))


if __name__ == "__main__":
    cache, threads, tier = open_cache(Path(sys.argv[1])), int(sys.argv[3]), sys.argv[4]
    if tier in ("aligned", "usual"):
        empty = aligned_empty if tier == "aligned" else np.empty
        shape = BATCH, cache.stride // WORD_BYTES
        buffers = [empty(shape, np.int64) for _ in range(2 * threads)]
        serve(lambda: limit(cache, threads, buffers), len(cache))
    else:
        cache = place_records(cache, tier, torch.device("cpu"))
        sampler = Sampler(cache, np.arange(len(cache)), BATCH, 0, OrderOptions())
        loader = Loader(cache, sampler, threads)
        serve(lambda: loader, len(cache))
