"""Which records make up the batches of an epoch: pure functions of (seed, epoch).

A batch here is the whole batch of one optimiser step. Several ranks share it: see `Loader`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from zoerefine.data.cache import Cache
from zoerefine.errors import UserError

BLOCK = 64  # records in a row that a windowed shuffle keeps together on the disk


@dataclass(frozen=True)
class Order:
    """An epoch: batch k is `index[ends[k - 1]:ends[k]]`. Both int64."""

    index: np.ndarray
    ends: np.ndarray

    def batch(self, k: int) -> np.ndarray:
        """The records of batch k, int64 [b]."""
        return self.index[self.ends[k - 1] if k else 0 : self.ends[k]]


@dataclass(frozen=True)
class Options:
    """How an epoch is ordered.

    Attributes:
        order: one of `ORDERS`.
        window: records that a windowed shuffle mixes with one another.
        scene_weights: for `weighted`; how likely a scene is, 1 where it is not named.
        rotate_every: every so many epochs another random subset of scenes; 0: all, always.
        rotate_scenes: how many scenes the subset has.
    """

    order: str = "shuffle"
    window: int = 4096
    scene_weights: Mapping[str, float] = field(default_factory=dict)
    rotate_every: int = 0
    rotate_scenes: int = 0


class Sampler:
    """The batches of every epoch.

    Args:
        cache: tells the scene and the clip of each record.
        indices: the records to sample from, int64 [n].
        batch: samples a batch; the last of an epoch (of a clip, with `clips`) may be smaller.
        seed: with the epoch, decides everything.

    Raises:
        UserError: an option that means nothing here.
    """

    def __init__(
        self, cache: Cache, indices: np.ndarray, batch: int, seed: int, options: Options
    ) -> None:
        if not len(indices):
            raise UserError(f"no frames to load from {cache.folder}: check the split")
        if batch < 1:
            raise UserError(f"LOADER.BATCH must be 1 or more, got {batch}")
        if options.order not in ORDERS:
            known = ", ".join(ORDERS)
            raise UserError(f"LOADER.ORDER must be one of {known}, got {options.order!r}")
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
        """An epoch's records, and where its batches end."""
        rng = np.random.default_rng([self.seed, epoch])
        at = ORDERS[self.options.order](self, self._places(epoch), rng)
        if self.options.order == "clips":
            return Order(self.indices[at], self._clip_ends(at))
        ends = np.arange(self.batch, len(at) + self.batch, self.batch).clip(max=len(at))
        return Order(self.indices[at], ends)

    def samples(self, epoch: int) -> int:
        """How many samples an epoch has."""
        return int(self._counts[self._scenes(epoch)].sum())

    def batches(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return self._batches(epoch if self.options.rotate_every else 0)

    def steps(self, epochs: int) -> int:
        """How many batches the first epochs have together."""
        return sum(self.batches(epoch) for epoch in range(epochs))

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch and the batch in it that come after so many batches."""
        epoch = 0
        while step >= self.batches(epoch):
            step -= self.batches(epoch)
            epoch += 1
        return epoch, step

    def _count_batches(self, epoch: int) -> int:
        if self.options.order == "clips":
            return len(self.order(epoch).ends)
        return -(-self.samples(epoch) // self.batch)

    def _scenes(self, epoch: int) -> np.ndarray:
        """The scenes of an epoch, as numbers."""
        every, count = self.options.rotate_every, len(self.scene_names)
        if not every:
            return np.arange(count)
        rng = np.random.default_rng([self.seed, epoch // every, count])
        return np.sort(rng.permutation(count)[: self.options.rotate_scenes])

    def _places(self, epoch: int) -> np.ndarray:
        """The places in `indices` of an epoch's scenes."""
        if not self.options.rotate_every:
            return np.arange(len(self.indices))
        return np.flatnonzero(np.isin(self.scenes, self._scenes(epoch)))

    def _clip_ends(self, at: np.ndarray) -> np.ndarray:
        """Where batches end that never hold two clips."""
        changes = np.flatnonzero(np.diff(self.clips[at])) + 1
        starts, stops = np.r_[0, changes], np.r_[changes, len(at)]
        ends = [
            np.arange(start + self.batch, stop + self.batch, self.batch).clip(max=stop)
            for start, stop in zip(starts, stops, strict=True)
        ]
        return np.concatenate(ends)


def _number_scenes(cache: Cache, clips: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scenes that some records' clips lie in, and each record's number among them."""
    used = np.flatnonzero(np.bincount(clips, minlength=len(cache.clips)))
    names = np.array([clip.scene for clip in cache.clips])
    scenes, number = np.unique(names[used], return_inverse=True)
    of_clip = np.zeros(len(cache.clips), np.int64)
    of_clip[used] = number
    return scenes, of_clip[clips]


def _scene_weights(weights: Mapping[str, float], names: np.ndarray) -> np.ndarray:
    unknown = set(weights) - set(names.tolist())
    if unknown:
        raise UserError(f"LOADER.SCENE_WEIGHTS: {min(unknown)} is no scene to train on")
    if any(weight < 0 for weight in weights.values()):
        raise UserError("LOADER.SCENE_WEIGHTS must not be negative")
    values = np.array([weights.get(name, 1.0) for name in names.tolist()])
    if not values.sum():
        raise UserError("LOADER.SCENE_WEIGHTS leave no scene to train on")
    return values


def _in_order(sampler: Sampler, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return places


def _shuffled(sampler: Sampler, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(places)


def _replaced(sampler: Sampler, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(places, len(places))


def _weighted(sampler: Sampler, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """With replacement; a scene is as likely as its weight says, however many frames it has."""
    scenes = sampler.scenes[places]
    share = (sampler.weights / sampler._counts)[scenes]
    if not share.sum():
        return rng.choice(places, len(places))  # a rotation to scenes of weight 0
    return rng.choice(places, len(places), p=share / share.sum())


def _windowed(sampler: Sampler, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Blocks of neighbours in random order, then records in random order inside each window.

    Reads of a window lie in a few long stretches, which hard disks and network storage want.
    Two neighbours share a batch more often than in a full shuffle: by (n - 1) / (window - 1),
    n records in all, where they share a block.
    """
    blocks = np.array_split(places, max(1, -(-len(places) // BLOCK)))
    mixed = np.concatenate([blocks[i] for i in rng.permutation(len(blocks))])
    size = max(sampler.options.window, sampler.batch)
    for start in range(0, len(mixed), size):
        rng.shuffle(mixed[start : start + size])
    return mixed


def _by_clip(sampler: Sampler, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whole clips in random order, the frames of each as they were filmed."""
    clips = sampler.clips[places]
    rank = np.empty(clips.max() + 1, np.int64)
    names = np.unique(clips)
    rank[names] = rng.permutation(len(names))
    return places[np.argsort(rank[clips], kind="stable")]


ORDERS: dict[str, Callable[[Sampler, np.ndarray, np.random.Generator], np.ndarray]] = {
    "shuffle": _shuffled,
    "replacement": _replaced,
    "weighted": _weighted,
    "windowed": _windowed,
    "sequential": _in_order,
    "clips": _by_clip,
}
