"""Raw records in WebDataset shards. argv: cache, samples, workers, folder to make."""

import sys
from pathlib import Path

import numpy as np
import torch
import webdataset as wds
from side import BATCH, STRIDE, serve

SHARD = 256  # records


def make(records: np.ndarray, folder: Path) -> None:
    """Write tar files."""
    folder.mkdir()
    with wds.ShardWriter(str(folder / "%04d.tar"), maxcount=SHARD, verbose=0) as writer:
        for number, record in enumerate(records):
            writer.write({"__key__": f"{number:08d}", "raw": record.tobytes()})


def decode(sample: dict[str, bytes]) -> torch.Tensor:
    """A record as a tensor."""
    return torch.from_numpy(np.frombuffer(sample["raw"], np.uint8).copy())


if __name__ == "__main__":
    samples, workers, folder = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    if not folder.exists():
        path = Path(sys.argv[1]) / "records.bin"
        make(np.memmap(path, np.uint8, "r", shape=(samples, STRIDE)), folder)
    shards = sorted(map(str, folder.glob("*.tar")))
    data = wds.WebDataset(shards, shardshuffle=len(shards)).shuffle(SHARD).map(decode)
    loaded = wds.WebLoader(data, batch_size=BATCH, num_workers=workers)
    serve(lambda: loaded, samples)
