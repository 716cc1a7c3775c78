"""A worker: a process that takes one trial of a study after another, until none is left."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from yacs.config import CfgNode

from zoerefine.config import load_config
from zoerefine.data.cache import Cache
from zoerefine.data.split import Split
from zoerefine.progress import say
from zoerefine.run_dir import RunDir
from zoerefine.search.objectives import measure, measure_config
from zoerefine.search.pruning import is_pruned_after_epoch, prune_reason_before_training
from zoerefine.search.space import Values, with_values
from zoerefine.search.study import Claim, Study, TakenOver
from zoerefine.train.job import prepare, train_for_study

ALWAYS_MEASURED = {"abs_rel", "parameters"}  # results.json has them
LOOK_S = 0.5  # between looks at a study in which others still run, or at a run still held


def work(run: RunDir, name: str, until: float = 0.0) -> None:
    """Run trials of the study in `run` until all have ended, none beginning after `until`.

    Args:
        run: a study's run directory, made by its driver.
        name: of this worker, unlike any other's.
        until: seconds since the epoch; 0: never too late.

    Raises:
        UserError: the study's config or database cannot be used, or its first trials all failed.
        KeyboardInterrupt: a signal asked to stop; the trial goes on where it stopped.
    """
    cfg = load_config(run.config_file)
    study = Study(cfg, run, name)
    study.release(name)  # a cluster starts a worker anew under its name when its node has died
    cache, split = prepare(cfg)
    worker = Worker(study, cache, split)
    while not until or time.time() < until:
        claim = study.claim()
        if claim is not None:
            worker.run_trial(claim)
        elif study.is_over():
            return
        else:  # another's trial may yet be left to us
            time.sleep(LOOK_S)


class Worker:
    """Trains what it claims."""

    def __init__(self, study: Study, cache: Cache, split: Split) -> None:
        self.study, self.cache, self.split = study, cache, split
        self.cfg = study.cfg

    def run_trial(self, claim: Claim) -> None:
        """Train one configuration and tell the study what came out, or what went wrong."""
        say(f"trial {claim.number}: {shown(claim.values)}")
        try:
            with heart(self.study, claim):
                self._run(claim)
        except KeyboardInterrupt:
            self.study.put_back(claim)
            raise
        except TakenOver:
            say(f"trial {claim.number} was taken over by another worker")
        except Exception as error:  # whatever it is, the other trials go on
            reason = str(error) or type(error).__name__
            say(f"trial {claim.number} failed: {reason}")
            self.study.fail(claim, reason)

    def _run(self, claim: Claim) -> None:
        cfg = self.trial_config(claim.values)
        criteria = self.study.criteria
        known = measure_config(cfg, criteria.measured)
        if reason := prune_reason_before_training(criteria, known):
            self.study.prune(claim, known, reason)
            return
        results = self.train_one(cfg, claim)
        needed = set() if results["pruned"] else criteria.measured
        figures = measure(claim.run, results, ALWAYS_MEASURED | needed)
        if results["pruned"]:
            self.study.prune(claim, figures, f"pruned after epoch {results['epochs']}")
        else:
            self.study.complete(claim, figures)
        say(f"trial {claim.number}: {shown(figures)}")

    def trial_config(self, values: Values) -> CfgNode:
        """A trial's own configuration."""
        cfg = with_values(self.cfg, values)
        if self.cfg.STUDY.EPOCHS:
            cfg.TRAIN.EPOCHS, cfg.TRAIN.STEPS = self.cfg.STUDY.EPOCHS, 0
        cfg.freeze()
        return cfg

    def train_one(self, cfg: CfgNode, claim: Claim) -> dict[str, Any]:
        """Train in the trial's run directory, or read what a finished run found."""
        run = claim.run
        while run.status().state == "running":  # held by whoever was taken for dead
            self._check_mine(claim)
            time.sleep(LOOK_S)

        def report(epoch: int, abs_rel: float) -> bool:
            self._check_mine(claim)
            return is_pruned_after_epoch(self.study.criteria, claim.trial, epoch, abs_rel)

        return train_for_study(self.study.run, run, cfg, self.cache, self.split, report, test=False)

    def _check_mine(self, claim: Claim) -> None:
        if not self.study.is_mine(claim):
            raise TakenOver


@contextmanager
def heart(study: Study, claim: Claim) -> Iterator[None]:
    """Tell the study, now and then, that this trial's worker lives."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(study.cfg.STUDY.HEARTBEAT_S):
            study.storage.record_heartbeat(claim.trial._trial_id)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def shown(values: Values) -> str:
    """Parameters or figures in a line."""
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in values.items()
    )
