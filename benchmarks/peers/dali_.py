"""NVIDIA DALI on the CPU: files are read, decoded and resized by its own threads.

argv: folder of pictures, samples, threads, a word that is not used. Frames are NAME.jpg,
NAME.depth.png and NAME.zoe.png, in one random order for all epochs.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from side import BATCH, HEIGHT, WIDTH, serve


@pipeline_def
def frames(pictures: list[Path]) -> tuple[Any, ...]:
    """RGB, depth and pseudo depth of a batch."""
    depths, zoes = (
        [one.with_suffix(end) for one in pictures] for end in (".depth.png", ".zoe.png")
    )
    return (
        decoded(pictures, output_type=types.RGB),
        decoded(depths, output_type=types.GRAY),
        decoded(zoes, output_type=types.ANY_DATA, dtype=types.UINT16),
    )


def decoded(paths: list[Path], **kind: object) -> Any:
    """Decoded and resized with a filter as wide as a new pixel."""
    files, _ = fn.readers.file(files=[str(path) for path in paths])
    pictures = fn.decoders.image(files, device="cpu", **kind)
    return fn.resize(pictures, size=(HEIGHT, WIDTH), interp_type=types.INTERP_TRIANGULAR)


if __name__ == "__main__":
    found, samples = sorted(Path(sys.argv[1]).glob("*.jpg")), int(sys.argv[2])
    order = np.random.default_rng(0).permutation(samples) % len(found)
    running = frames(
        [found[index] for index in order],
        batch_size=BATCH,
        num_threads=int(sys.argv[3]),
        device_id=None,
        prefetch_queue_depth=2,
    )
    running.build()

    def epoch() -> Iterator[object]:
        for _ in range(-(-samples // BATCH)):
            yield running.run()

    serve(epoch, samples)
