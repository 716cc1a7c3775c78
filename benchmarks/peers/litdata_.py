"""Raw records in LitData chunks. argv: cache, samples, workers, folder to make."""

import os
import sys
from pathlib import Path

import numpy as np
from side import BATCH, STRIDE, serve

os.environ.setdefault("DATA_OPTIMIZER_GLOBAL_RANK", "0")


def record(job: tuple[int, Path, int]) -> dict[str, object]:
    """One record as LitData stores it; a job is its number, the file, and the file's samples."""
    number, path, samples = job
    return {"raw": np.array(np.memmap(path, np.uint8, "r", shape=(samples, STRIDE))[number])}


if __name__ == "__main__":
    import litdata

    samples, workers, folder = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    if not folder.exists():
        jobs = [(n, Path(sys.argv[1]) / "records.bin", samples) for n in range(samples)]
        litdata.optimize(record, jobs, str(folder), chunk_bytes="64MB", num_workers=1)
    data = litdata.StreamingDataset(str(folder), shuffle=True)
    loader = litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=workers)
    serve(lambda: loader, samples)
