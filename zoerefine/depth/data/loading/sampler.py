"""Which records make up the batches of an epoch: pure functions of (seed, epoch).

A batch here is the whole batch of one optimiser step; several ranks share it (see `Loader`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.depth.data.cache.cache import Cache

Array = np.ndarray
BLOCK = 64  # neighbouring records that a windowed shuffle reads together


@dataclass(frozen=True)
class Order:
    """The order of an epoch: batch k is `index[ends[k - 1]:ends[k]]`. Both are int64."""

    index: Array
    ends: Array

    def batch(self, k: int) -> Array:
        """The records of batch k, int64 [b]."""
        return self.index[self.ends[k - 1] if k else 0 : self.ends[k]]


@dataclass(frozen=True)
class OrderOptions:
    """How an epoch is ordered.

    Attributes:
        order: one of `ORDERS`.
        window: size of a windowed shuffle's window, in records.
        scene_weights: for `weighted`: relative probability of a scene by name, 1 by default.
        rotate_every: train on another random subset of scenes every `rotate_every` epochs; 0:
            always on all scenes.
        rotate_scenes: size of that subset.
    """

    order: str = "shuffle"
    window: int = 4096
    scene_weights: Mapping[str, float] = field(default_factory=dict)
    rotate_every: int = 0
    rotate_scenes: int = 0


class Sampler:
    """The batches of every epoch.

    Args:
        cache: has the scene and the clip of each record.
        indices: the records to sample from, int64 [n].
        batch: samples a batch; the last of an epoch (of a clip, with `clips`) may be smaller.
        seed: decides, with the epoch's number, everything that is random.

    Raises:
        UserError: no records, or an option that is impossible for them.
    """

    def __init__(
        self, cache: Cache, indices: Array, batch: int, seed: int, options: OrderOptions
    ) -> None:
        if not len(indices):
            raise UserError(f"no frames to load from {cache.folder}: check the split")
        self.indices, self.batch, self.seed, self.options = indices, batch, seed, options
        self.clips = cache.frames["clip"][indices]
        self.scene_names, self.scenes = _number_scenes(cache, self.clips)
        self.weights = _scene_weights(options.scene_weights, self.scene_names)
        if options.rotate_every and not 0 < options.rotate_scenes <= len(self.scene_names):
            raise UserError(
                f"LOADER.ROTATE_SCENES must be 1 to {len(self.scene_names)}, the scenes to train "
                f"on; got {options.rotate_scenes}"
            )
        self._counts = np.bincount(self.scenes)
        self._batches = lru_cache(self._count_batches)

    def order(self, epoch: int) -> Order:
        """An epoch's records in order, and where its batches end.

        `ORDERS` put positions in `indices` in order: those of the records of the epoch's scenes.
        """
        rng = np.random.default_rng([self.seed, epoch])
        positions = np.flatnonzero(np.isin(self.scenes, self._scenes(epoch)))
        at = ORDERS[self.options.order](self, positions, rng)
        if self.options.order == "clips":
            return Order(self.indices[at], self._clip_ends(at))
        ends = np.arange(self.batch, len(at) + self.batch, self.batch).clip(max=len(at))
        return Order(self.indices[at], ends)

    def samples(self, epoch: int) -> int:
        """Number of samples in an epoch."""
        return int(self._counts[self._scenes(epoch)].sum())

    def batches(self, epoch: int) -> int:
        """Number of batches in an epoch."""
        return self._batches(epoch if self.options.rotate_every else 0)

    def steps(self, epochs: int) -> int:
        """Number of batches in the first `epochs` epochs together."""
        return sum(self.batches(epoch) for epoch in range(epochs))

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch, and the batch in it, of an optimiser step; all count from 0."""
        epoch = 0
        while step >= self.batches(epoch):
            step -= self.batches(epoch)
            epoch += 1
        return epoch, step

    def _count_batches(self, epoch: int) -> int:
        if self.options.order == "clips":
            return len(self.order(epoch).ends)
        return -(-self.samples(epoch) // self.batch)

    def _scenes(self, epoch: int) -> Array:
        """The numbers of an epoch's scenes."""
        every, count = self.options.rotate_every, len(self.scene_names)
        if not every:
            return np.arange(count)
        rng = np.random.default_rng([self.seed, epoch // every, count])
        return np.sort(rng.permutation(count)[: self.options.rotate_scenes])

    def _clip_ends(self, at: Array) -> Array:
        """Where batches end, so that no batch holds two clips."""
        changes = np.flatnonzero(np.diff(self.clips[at])) + 1
        starts, stops = np.r_[0, changes], np.r_[changes, len(at)]
        ends = [
            np.arange(start + self.batch, stop + self.batch, self.batch).clip(max=stop)
            for start, stop in zip(starts, stops, strict=True)
        ]
        return np.concatenate(ends)


def _number_scenes(cache: Cache, clips: Array) -> tuple[Array, Array]:
    """The names of the records' scenes, and each record's number among these."""
    used = np.flatnonzero(np.bincount(clips, minlength=len(cache.clips)))
    names = np.array([clip.scene for clip in cache.clips])
    scenes, number = np.unique(names[used], return_inverse=True)
    of_clip = np.zeros(len(cache.clips), np.int64)
    of_clip[used] = number
    return scenes, of_clip[clips]


def _scene_weights(weights: Mapping[str, float], names: Array) -> Array:
    unknown = set(weights) - set(names.tolist())
    if unknown:
        raise UserError(f"LOADER.SCENE_WEIGHTS: {min(unknown)} is no scene to train on")
    values = np.array([weights.get(name, 1.0) for name in names.tolist()])
    if not values.sum():
        raise UserError("LOADER.SCENE_WEIGHTS: one scene to train on needs a weight above 0")
    return values


def _weighted(sampler: Sampler, positions: Array, rng: np.random.Generator) -> Array:
    """With replacement; a scene's probability is by its weight, whatever its number of frames."""
    scenes = sampler.scenes[positions]
    share = (sampler.weights / sampler._counts)[scenes]
    if not share.sum():
        return rng.choice(positions, len(positions))  # all scenes of this rotation weigh 0
    return rng.choice(positions, len(positions), p=share / share.sum())


def _windowed(sampler: Sampler, positions: Array, rng: np.random.Generator) -> Array:
    """Blocks of neighbours in random order, then records in random order inside each window.

    A window is read in a few long stretches, which is fast on hard disks and network storage.
    Two neighbours in one block share a batch (n - 1) / (window - 1) times as often as in a full
    shuffle of n records.
    """
    blocks = np.array_split(positions, max(1, -(-len(positions) // BLOCK)))
    mixed = np.concatenate([blocks[i] for i in rng.permutation(len(blocks))])
    size = max(sampler.options.window, sampler.batch)
    for start in range(0, len(mixed), size):
        rng.shuffle(mixed[start : start + size])
    return mixed


def _by_clip(sampler: Sampler, positions: Array, rng: np.random.Generator) -> Array:
    """Whole clips in random order, the frames of each in the order of the film."""
    clips = sampler.clips[positions]
    rank = np.empty(clips.max() + 1, np.int64)
    names = np.unique(clips)
    rank[names] = rng.permutation(len(names))
    return positions[np.argsort(rank[clips], kind="stable")]


ORDERS: dict[str, Callable[[Sampler, Array, np.random.Generator], Array]] = {
    "shuffle": lambda _, positions, rng: rng.permutation(positions),
    "replacement": lambda _, positions, rng: rng.choice(positions, len(positions)),
    "weighted": _weighted,
    "windowed": _windowed,
    "sequential": lambda _, positions, rng: positions,
    "clips": _by_clip,
}
