"""The log of a run: metrics.jsonl and TensorBoard, without duplicate rows after a resume."""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from zoerefine.base.files.file_lock import is_open_at
from zoerefine.base.run_dir import RunDir, was_moved
from zoerefine.base.yaml.keys import flatten

BOARD = "events.out.tfevents."
BOARD_FILE = re.compile(rf"{re.escape(BOARD)}(\d+)\.")  # seconds; then host and process
# Of TensorBoard's tab "Custom Scalars": charts with several lines.
LAYOUT = {
    "Validation": {
        "AbsRel": ["Multiline", ["eval/abs_rel/refined", "eval/abs_rel/pseudo"]],
        "delta1": ["Multiline", ["eval/delta1/refined", "eval/delta1/pseudo"]],
        "RMSE": ["Multiline", ["eval/rmse/refined", "eval/rmse/pseudo"]],
    },
    "Training": {
        "loss": ["Multiline", ["train/loss", "eval/loss"]],
        "learning rate": ["Multiline", ["train/lr"]],
        "images/s": ["Multiline", ["train/images_per_s"]],
        "share of time that waits for data": ["Multiline", ["train/wait_share"]],
    },
}


class RunLog:
    """Appends rows to `metrics.jsonl` and the same numbers to TensorBoard.

    A checkpoint holds `offset`, the length of metrics.jsonl in bytes. A resumed run truncates the
    file to it, so rows written after the checkpoint are not written twice.
    """

    def __init__(self, run: RunDir, offset: int = 0, step: int = 0) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        run.path.mkdir(parents=True, exist_ok=True)
        self._path = run.metrics_file
        self._file = self._path.open("ab")
        self._file.truncate(offset)
        wait_for_later_name(run.tensorboard)
        self._board = SummaryWriter(str(run.tensorboard), purge_step=step + 1)
        if not step:
            self._board.add_custom_scalars(LAYOUT)

    @property
    def offset(self) -> int:
        """Length of metrics.jsonl in bytes, after flushing it and TensorBoard's file."""
        with self._in_place():
            self._board.flush()
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.seek(0, os.SEEK_END)

    def write(self, phase: str, step: int, epoch: int, values: Mapping[str, Any]) -> None:
        """Log one row; `board_tag` has the names of its values in TensorBoard."""
        row = {"phase": phase, "step": step, "epoch": epoch, **values}
        with self._in_place():
            self._file.write(json.dumps(row).encode() + b"\n")
            self._file.flush()
            for name, value in flatten(values, "/").items():
                self._board.add_scalar(board_tag(phase, name), value, step)

    def picture(self, name: str, step: int, picture: np.ndarray) -> None:
        """Show a picture of a validation frame, uint8 [H, W, 3], in TensorBoard."""
        with self._in_place():
            self._board.add_image(board_tag("val", name), picture, step, dataformats="HWC")

    def histograms(self, step: int, refiner: nn.Module) -> None:
        """Show histograms of weights and gradients in TensorBoard."""
        with self._in_place():
            for name, weights in refiner.named_parameters():
                self._board.add_histogram(f"weights/{name}", weights.detach(), step)
                if weights.grad is not None:
                    self._board.add_histogram(f"gradients/{name}", weights.grad, step)

    def close(self) -> None:
        if self._is_in_place():  # else TensorBoard's thread fails
            self._board.close()
        self._file.close()

    def _is_in_place(self) -> bool:
        return is_open_at(self._file.fileno(), self._path)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Raises `UserError` where the run's folder was moved or deleted, before or meanwhile."""
        if not self._is_in_place():
            raise was_moved(self._path.parent)
        try:
            yield
        except OSError:
            if self._is_in_place():
                raise
            raise was_moved(self._path.parent) from None


def wait_for_later_name(folder: Path) -> None:
    """Wait until a new event file sorts after those of earlier processes, up to two seconds.

    TensorBoard reads files in the order of their names, which begin with the second of their start.
    A file of the same second could come first, and its steps would be discarded as repeated ones.
    Files of a later second, from before the clock was set back, get this second before their own.
    """
    now = int(time.time())
    found = [(match, path) for path in folder.glob("*") if (match := BOARD_FILE.match(path.name))]
    for match, path in sorted(found, key=lambda one: one[1].name):
        if int(match[1]) > now:
            path.rename(path.with_name(f"{BOARD}{now}.{path.name.removeprefix(BOARD)}"))
    newest = min(now, max((int(match[1]) for match, _ in found), default=0))
    end = time.monotonic() + 2
    while int(time.time()) <= newest and time.monotonic() < end:
        time.sleep(0.02)


def board_tag(phase: str, name: str) -> str:
    """A value's name in TensorBoard, which sorts by it and shows the first ones.

    Validation comes first, and in it each metric with its depths side by side:
    `eval/abs_rel/refined`, `train/loss`.
    """
    if phase != "val":
        return f"{phase}/{name}"
    which, slash, metric = name.partition("/")
    is_metric = slash and which in ("refined", "pseudo", "ratio")
    return f"eval/{metric}/{which}" if is_metric else f"eval/{name}"
