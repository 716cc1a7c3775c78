"""Raw records in FFCV. argv: cache, samples, threads, file to make."""

import sys
from pathlib import Path

import numpy as np
from ffcv.fields import NDArrayField
from ffcv.fields.ndarray import NDArrayDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter
from side import BATCH, STRIDE, serve


class Records:
    """The records as FFCV's writer reads them."""

    def __init__(self, path: Path, samples: int) -> None:
        self.records = np.memmap(path, np.uint8, "r", shape=(samples, STRIDE))

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> tuple[np.ndarray]:
        return (np.array(self.records[index]),)


if __name__ == "__main__":
    samples, threads, path = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    if not path.exists():
        fields = {"raw": NDArrayField(np.dtype("uint8"), (STRIDE,))}
        writer = DatasetWriter(str(path), fields, num_workers=1)
        writer.from_indexed_dataset(Records(Path(sys.argv[1]) / "records.bin", samples))
    loader = Loader(
        str(path),
        batch_size=BATCH,
        num_workers=threads,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        pipelines={"raw": [NDArrayDecoder(), ToTensor()]},
    )
    serve(lambda: loader, samples)
