"""zoerefine's loader, and the limit of memory: one thread copies rows into two buffers.

argv: folder of the packed cache, samples, threads (0: the limit), tier.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from side import BATCH, serve

from zoerefine.data.cache import Cache, MappedRecords, open_cache
from zoerefine.data.loader import Loader
from zoerefine.data.sampler import OrderOptions, Sampler
from zoerefine.data.tiers import place_records


def copies(cache: Cache) -> Iterator[np.ndarray]:
    """An epoch of whole-batch copies without anything else."""
    assert isinstance(cache.records, MappedRecords)
    rows = cache.records.rows
    buffers = [np.empty((BATCH, rows.shape[1]), np.int64) for _ in range(2)]
    order = np.random.default_rng().permutation(len(rows))
    for number, start in enumerate(range(0, len(order), BATCH)):
        chunk, buffer = order[start : start + BATCH], buffers[number % 2]
        yield np.take(rows, chunk, 0, out=buffer[: len(chunk)], mode="clip")


if __name__ == "__main__":
    cache, threads = open_cache(Path(sys.argv[1])), int(sys.argv[3])
    if not threads:
        serve(lambda: copies(cache), len(cache))
    else:
        cache = place_records(cache, sys.argv[4], torch.device("cpu"))
        sampler = Sampler(cache, np.arange(len(cache)), BATCH, 0, OrderOptions())
        loader = Loader(cache, sampler, threads)
        serve(lambda: loader, len(cache))
