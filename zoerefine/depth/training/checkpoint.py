"""Checkpoints: the complete state for an exact resume, and the best weights for evaluation.

`checkpoints/step-<step>-<digest>.pt` has the first half of its SHA-256 in its name: a damaged file
is detected, and the one before it is used. `checkpoints/best.safetensors` holds only weights;
`weights.sha256` is the digest of its tensors.
"""

import hashlib
import io
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from zoerefine.base import ranks
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing, write_text
from zoerefine.base.messages import say
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.model import RefinerNetwork, build_refiner


class CheckpointWriter:
    """Writes checkpoints in a background thread, one at a time, and keeps the last few.

    Args:
        every_s: the time from one to the next.
    """

    def __init__(self, folder: Path, kept: int, every_s: float) -> None:
        self.folder, self.kept, self.every_s = folder, kept, every_s
        self.restart_clock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def restart_clock(self) -> None:
        """The next checkpoint is due `every_s` seconds from now."""
        self._began = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self._began >= self.every_s

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Copy `state` and write it in the background. Errors as `wait`, of the write before."""
        self.wait()
        snapshot = _copied(state)
        self._thread = threading.Thread(target=self._write, args=(step, snapshot))
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last write is on the disk. Raises `UserError` where it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise UserError(f"the checkpoint in {self.folder} could not be written: {error}")

    def _write(self, step: int, state: dict[str, Any]) -> None:
        try:
            buffer = io.BytesIO()
            torch.save(state, buffer)
            data = buffer.getvalue()
            with replacing(self.folder / f"step-{step:09d}-{_digest(data)}.pt") as path:
                path.write_bytes(data)
            for old in checkpoint_files(self.folder)[self.kept :]:
                old.unlink()
        except Exception as error:  # raised in `wait`, in the training thread
            self._error = error


def checkpoint_files(folder: Path) -> list[Path]:
    """The run's checkpoints, newest first."""
    return sorted(folder.glob("step-*.pt"), reverse=True)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest undamaged checkpoint, on the CPU; None where there is none."""
    for path in checkpoint_files(folder):
        data = path.read_bytes()
        if path.stem.endswith(_digest(data)):
            state: dict[str, Any] = torch.load(
                io.BytesIO(data), map_location="cpu", weights_only=True
            )
            return state
        say(f"{path} is damaged (its digest differs from its name); using the one before it")
    return None


def rename_damaged(folder: Path, loaded: Mapping[str, Any] | None) -> None:
    """Rename checkpoints after the `loaded` one, once every rank has it: they are damaged, and
    would count as the newest ones."""
    ranks.wait_for_all()
    if not ranks.is_writer():
        return
    step = loaded["step"] if loaded else -1
    for path in checkpoint_files(folder):
        if int(path.name.split("-")[1]) > step:
            path.rename(path.with_suffix(".damaged"))


def set_aside(run: RunDir) -> None:
    """Rename the checkpoints of damaged records, so that the same command starts anew."""
    if run.checkpoints.exists():
        aside = run.path / "checkpoints-of-damaged-records"
        shutil.rmtree(aside, ignore_errors=True)
        run.checkpoints.rename(aside)


def save_best(run: RunDir, weights: dict[str, Tensor]) -> None:
    """Write the best weights and their digest.

    Until the weights are replaced, the digest file has both digests: after a kill in between,
    `load_best` finds what it needs.
    """
    weights = {name: t.detach().cpu().contiguous() for name, t in weights.items()}
    digest = weights_digest(weights)
    recorded = run.weights_digest_file
    write_text(recorded, "\n".join([digest, *run.weights_digests()]) + "\n")
    with replacing(run.checkpoints / "best.safetensors") as path:
        path.write_bytes(save(weights))  # its own writer does not name the file of an error
    write_text(recorded, digest + "\n")


def load_best(run: RunDir, refiner: nn.Module) -> None:
    """Load the run's best weights into `refiner`.

    Raises:
        UserError: the run has no weights, they differ from their recorded digest, or they do not
            fit this version's refiner.
    """
    path = run.checkpoints / "best.safetensors"
    if not (path.exists() and run.weights_digest_file.exists()):
        raise UserError(f"{run.path} has no trained weights: train it first")
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is damaged: {error}") from None
    if weights_digest(weights) not in run.weights_digests():
        raise UserError(f"{path} differs from {run.weights_digest_file.name}: it was altered")
    try:
        refiner.load_state_dict(weights)
    except RuntimeError:
        commit = run.read_json(run.provenance_file).get("commit", "another")
        raise UserError(
            f"{path} does not fit this version's refiner: use the version of its commit, {commit}"
        ) from None


def load_refiner(run: RunDir) -> RefinerNetwork:
    """The run's best refiner on the CPU, in evaluation mode, float32; errors as `load_best`."""
    cfg = load_config(run.config_file)
    refiner = build_refiner(cfg.MODEL)
    load_best(run, refiner)
    return refiner.eval()


def weights_digest(weights: dict[str, Tensor]) -> str:
    """SHA-256 over name, dtype, shape and bytes of each tensor, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value
