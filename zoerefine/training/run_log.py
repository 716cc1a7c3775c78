"""The log of a run: metrics.jsonl and TensorBoard, without duplicate rows after a resume."""

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from zoerefine.run_dir import RunDir
from zoerefine.trees import flatten


class RunLog:
    """Appends rows to `metrics.jsonl` and the same numbers to TensorBoard.

    A checkpoint holds `offset`, the length of metrics.jsonl in bytes. A resumed run truncates the
    file to it, so rows written after the checkpoint are not written twice.
    """

    def __init__(self, run: RunDir, offset: int = 0, step: int = 0) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        run.path.mkdir(parents=True, exist_ok=True)
        self._file = run.metrics_file.open("ab")
        self._file.truncate(offset)
        self._board = SummaryWriter(str(run.tensorboard), purge_step=step + 1)

    @property
    def offset(self) -> int:
        """Length of metrics.jsonl in bytes, after flushing it and TensorBoard's file."""
        self._board.flush()
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.seek(0, os.SEEK_END)

    def write(self, phase: str, step: int, epoch: int, values: Mapping[str, Any]) -> None:
        """Log one row. Nested values become TensorBoard tags joined by '/'."""
        row = {"phase": phase, "step": step, "epoch": epoch, **values}
        self._file.write(json.dumps(row).encode() + b"\n")
        self._file.flush()
        for tag, value in flatten(values, "/", phase).items():
            self._board.add_scalar(tag, value, step)

    def picture(self, tag: str, step: int, picture: np.ndarray) -> None:
        """Show a picture, uint8 [H, W, 3], in TensorBoard."""
        self._board.add_image(tag, picture, step, dataformats="HWC")

    def histograms(self, step: int, refiner: nn.Module) -> None:
        """Show histograms of weights and gradients in TensorBoard."""
        for name, weights in refiner.named_parameters():
            self._board.add_histogram(f"weights/{name}", weights.detach(), step)
            if weights.grad is not None:
                self._board.add_histogram(f"gradients/{name}", weights.grad, step)

    def close(self) -> None:
        self._board.close()
        self._file.close()
