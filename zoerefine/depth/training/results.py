"""The final evaluation of a run: what results.json says of its best weights."""

from typing import Any

from zoerefine.base.ranks import is_writer, wait_for_all
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.training.checkpoint import load_best, save_best
from zoerefine.depth.training.trainer import Trainer


def final_results(trainer: Trainer, run: RunDir, test: bool) -> dict[str, Any]:
    """Load the run's best weights, calibrate them on validation scenes, and evaluate them.

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
