"""A memory-mapped file, read one sample at a time, through default_collate.

argv: folder of the packed cache, samples, DataLoader workers.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from side import BATCH, STRIDE, serve
from torch.utils.data import DataLoader, Dataset


class Mapped(Dataset[torch.Tensor]):
    """The records of the packed cache."""

    def __init__(self, path: Path, samples: int) -> None:
        self.records = np.memmap(path, np.uint8, "r", shape=(samples, STRIDE))

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self.records[index]))


if __name__ == "__main__":
    mapped = Mapped(Path(sys.argv[1]) / "records.bin", int(sys.argv[2]))
    workers = int(sys.argv[3])
    serve(lambda: DataLoader(mapped, BATCH, shuffle=True, num_workers=workers), len(mapped))
