"""Raw records in HDF5, a chunk each, through default_collate.

argv: cache, samples, DataLoader workers, file to make.
"""

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from side import BATCH, STRIDE, serve
from torch.utils.data import DataLoader, Dataset


def make(records: np.ndarray, path: Path) -> None:
    """Write each record as a chunk, without compression."""
    with h5py.File(path, "w") as file:
        file.create_dataset("records", data=records, chunks=(1, STRIDE))


class Stored(Dataset[torch.Tensor]):
    """Records in an HDF5 file, which each worker process opens for itself."""

    def __init__(self, path: Path, samples: int) -> None:
        self.path, self.samples = path, samples
        self.records: Any = None

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.records is None:
            self.records = h5py.File(self.path)["records"]
        return torch.from_numpy(self.records[index])


if __name__ == "__main__":
    samples, workers, path = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    if not path.exists():
        source = Path(sys.argv[1]) / "records.bin"
        make(np.memmap(source, np.uint8, "r", shape=(samples, STRIDE)), path)
    stored = Stored(path, samples)
    serve(lambda: DataLoader(stored, BATCH, shuffle=True, num_workers=workers), samples)
