"""Raw records in LMDB, through default_collate. argv: cache, samples, workers, folder to make."""

import sys
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import torch
from side import BATCH, STRIDE, serve
from torch.utils.data import DataLoader, Dataset


def make(records: np.ndarray, folder: Path) -> None:
    """Write each record under its number."""
    with (
        lmdb.open(str(folder), map_size=2 * records.nbytes + 2**24) as environment,
        environment.begin(write=True) as writer,
    ):
        for number, record in enumerate(records):
            writer.put(number.to_bytes(8, "big"), record.tobytes())


class Stored(Dataset[torch.Tensor]):
    """Records in an LMDB, which each worker process opens for itself."""

    def __init__(self, folder: Path, samples: int) -> None:
        self.folder, self.samples = folder, samples
        self.reader: Any = None

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.reader is None:
            options = {"readonly": True, "lock": False, "readahead": False}
            self.reader = lmdb.open(str(self.folder), **options).begin(buffers=True)
        value = self.reader.get(index.to_bytes(8, "big"))
        return torch.from_numpy(np.frombuffer(value, np.uint8).copy())


if __name__ == "__main__":
    samples, workers, folder = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    if not folder.exists():
        path = Path(sys.argv[1]) / "records.bin"
        make(np.memmap(path, np.uint8, "r", shape=(samples, STRIDE)), folder)
    stored = Stored(folder, samples)
    serve(lambda: DataLoader(stored, BATCH, shuffle=True, num_workers=workers), samples)
