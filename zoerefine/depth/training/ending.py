"""How a training ends: by a signal, or with the final evaluation. failures.py has the rest."""

import signal
import threading
from types import FrameType
from typing import Any

import numpy as np

from zoerefine.base.files.images import write_png
from zoerefine.base.messages import say
from zoerefine.base.ranks import is_writer, wait_for_all
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.dataset import evenly_spaced
from zoerefine.depth.data.depth_unit import far_of
from zoerefine.depth.training.checkpoint import load_best, save_best
from zoerefine.depth.training.trainer import Trainer

FAR_FRAMES = 64  # by which it is known how far pseudo depth was


class StopSignals:
    """A context in which the first signal sets `requested` (in the main thread only).

    The first Ctrl-C or SIGTERM stops a run after its step, with a checkpoint; a second Ctrl-C, at
    once. A second SIGTERM does not: Slurm sends one to every process, and torchrun passes its own
    on.
    """

    def __init__(self) -> None:
        self.requested = False
        self._old: dict[int, object] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.requested = True
        say("stopping after this step, with a checkpoint; a second Ctrl-C stops at once")


def final_results(trainer: Trainer, run: RunDir, test: bool) -> dict[str, Any]:
    """What results.json says of a run: its best weights, calibrated on validation scenes.

    After a kill the same call gives the same results: a calibration begins by resetting the last.

    Args:
        trainer: at the end of training; its averaged weights are replaced by the best ones.
        run: has the best weights, unless there are no validation scenes to select by: then the
            last weights are saved as the best.
        test: whether to evaluate on the test scenes, too.
    """
    split = trainer.split
    if not split.val and is_writer():
        save_best(run, trainer.weights.state_dict())
    wait_for_all()
    load_best(run, trainer.weights)
    calibration = None
    if split.val and trainer.cfg.TRAIN.CALIBRATE:
        calibration = trainer.calibrate()
        if is_writer():
            save_best(run, trainer.weights.state_dict())
            if pictures := [picture for _, picture in trainer.pictures(split.val)]:
                write_png(run.validation_picture, np.concatenate(pictures))  # as the bundle refines
    results: dict[str, Any] = {
        "schema": 1,
        "data": trainer.cache.label,
        "pseudo_label": trainer.cache.pseudo_label,
        "pseudo": trainer.cache.pseudo.as_json(),
        "scenes": {"train": split.train, "val": split.val, "test": split.test},
        "parameters": sum(p.numel() for p in trainer.refiner.parameters()),
        "epochs": trainer.sampler.locate(trainer.step)[0],
        "untrained_max_change_m": trainer.untrained_change(),
        "log_scale": trainer.log_scale,
        "calibration": calibration,
        "pseudo_far_m": far_m(trainer),
    }
    if split.val:
        results["val"] = trainer.evaluate(split.val, detail=True)
    if test and split.test:
        results["test"] = trainer.evaluate(split.test, detail=True)
        results["test_scenes"] = results["test"].pop("scenes")
        if is_writer():
            results["test"]["shuffled"] = trainer.evaluate_shuffled(split.test)
    # Last, since a cache in `fill` mode is complete only now.
    return results | {"data_digest": trainer.cache.dataset_digest}


def far_m(trainer: Trainer) -> float:
    """`far_of` the pseudo depth of some training frames."""
    indices = evenly_spaced(trainer.cache.indices(trainer.split.train).tolist(), FAR_FRAMES)
    return far_of(np.stack([trainer.cache.read(index)["zoe"] for index in indices]))
