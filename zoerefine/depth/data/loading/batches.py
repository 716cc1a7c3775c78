"""Batches of a data set in one call, for scripts and notebooks."""

from collections.abc import Sequence
from pathlib import Path

import torch

from zoerefine.base.config import check_value
from zoerefine.base.errors import UserError
from zoerefine.base.machine.device import pick_device
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.dataset import Dataset
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.prefetch import Prefetcher, Transform
from zoerefine.depth.data.loading.sampler import OrderOptions, Sampler
from zoerefine.depth.data.loading.tiers import place_records


def make_loader(
    dataset: Dataset,
    batch: int = 16,
    *,
    scenes: Sequence[str] = (),
    size: tuple[int, int] = (192, 256),
    order: str = "shuffle",
    seed: int = 0,
    device: torch.device | str | None = None,
    transform: Transform | None = None,
    cache_root: str | Path = "caches",
    max_broken: float = 0.01,
    tier: str = "auto",
    threads: int = 0,
) -> Prefetcher:
    """An iterable of `DeviceBatch`; the data set is packed first if it is not yet.

    Each iteration is an epoch, also after one that was left early, and `len()` is its number of
    batches. Batches own their memory and can be kept::

        dataset = open_dataset("data/synthetic")
        for batch in make_loader(dataset, batch=8, scenes=["scene00"]):
            loss = ((batch.zoe_m - batch.depth_m)[batch.depth_m > 0] ** 2).mean()

    Args:
        batch: samples a batch; an epoch's last may be smaller.
        scenes: names of the scenes to load; empty: all.
        size: height and width that frames are packed at, pixels.
        order: shuffle, replacement, weighted, windowed, sequential or clips; see docs/loading.md.
        seed: decides, with the epoch's number, the order.
        device: of the batches; None: the GPU, or the CPU without one.
        transform: applied to each batch on the device.
        cache_root: the folder of packed caches.
        max_broken: share of unreadable frames above which packing is an error.
        tier: auto, mmap, ram or device: where records are kept while they are read.
        threads: that gather batches; 0: one a core, at most 4.

    Raises:
        UserError: an unknown scene, an impossible option, too many broken frames, or too little
            disk space.
    """
    if isinstance(scenes, str):
        raise UserError(f"scenes is a list of names: write [{scenes!r}]")
    unknown = sorted(set(scenes) - set(dataset.scenes))
    if unknown:
        known = ", ".join(dataset.scenes)
        raise UserError(f"scenes: {dataset.root} has no {unknown[0]!r}; known: {known}")
    for key, value in (("BATCH", batch), ("ORDER", order), ("TIER", tier), ("THREADS", threads)):
        check_value(f"LOADER.{key}", value)
    check_value("SEED", seed)
    if len(size) != 2:
        raise UserError(f"size is height and width in pixels, got {size}")
    for key, value in zip(("HEIGHT", "WIDTH"), size, strict=True):
        check_value(f"CACHE.{key}", value)
    target = pick_device() if device is None else torch.device(device)
    if target.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {target}: this machine has no GPU that torch can use")
    packed = build_cache(dataset, *size, Path(cache_root), max_broken=max_broken)
    cache = place_records(packed, tier, target)
    indices = cache.indices(tuple(scenes) or cache.scenes)
    sampler = Sampler(cache, indices, batch, seed, OrderOptions(order))
    loader = Loader(cache, sampler, threads, pinned=target.type == "cuda")
    return Prefetcher(loader, target, transform, whole_epochs=True)
