"""A worker: a process that runs one trial of a study after another until none is left."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zoerefine.config import Config, load_config
from zoerefine.config.combinations import check_combinations
from zoerefine.data.cache import Cache
from zoerefine.data.split import Split
from zoerefine.errors import UserError
from zoerefine.progress import say
from zoerefine.run_dir import RunDir
from zoerefine.searching.claims import (
    Claim,
    ClaimLost,
    claim_trial,
    complete,
    fail,
    is_held,
    prune,
    put_back,
)
from zoerefine.searching.config_values import with_values
from zoerefine.searching.lost_trials import requeue_trials_of
from zoerefine.searching.objectives import measure, measure_config
from zoerefine.searching.pruning import is_pruned_after_epoch, prune_reason_before_training
from zoerefine.searching.space import Values
from zoerefine.searching.study import Study
from zoerefine.searching.trial_record import format_values
from zoerefine.training.job import prepare, train_for_study

ALWAYS_MEASURED = {"abs_rel", "parameters"}  # results.json has them
POLL_S = 0.5  # between looks at a study in which others still run, or at a run that is locked


def run_worker(run: RunDir, name: str, until: float = 0.0) -> None:
    """Run trials of the study in `run` until all have ended.

    Args:
        run: a study's run directory, made by its driver.
        name: of this worker, unlike any other's.
        until: no trial begins after this time, seconds since the epoch; 0: no limit.

    Raises:
        UserError: there is no study, its config or database cannot be used, or its first trials
            all failed.
        KeyboardInterrupt: a signal asked to stop; another worker can continue the trial.
    """
    if not run.config_file.exists():
        raise UserError(f"{run.path} is not a study: give the folder that a search wrote")
    cfg = load_config(run.config_file)
    study = Study(cfg, run)
    # A cluster restarts a worker under the same name when its node has died.
    requeue_trials_of(study, name)
    cache, split = prepare(cfg)
    worker = Worker(study, cache, split)
    while not until or time.time() < until:
        claim = claim_trial(study, name)
        if claim is not None:
            worker.run_trial(claim)
        elif study.is_over():
            return
        else:  # a running trial may still lose its worker
            time.sleep(POLL_S)


class Worker:
    """Trains the trials that it claims."""

    def __init__(self, study: Study, cache: Cache, split: Split) -> None:
        self.study, self.cache, self.split = study, cache, split
        self.cfg = study.cfg

    def run_trial(self, claim: Claim) -> None:
        """Train one configuration, and record its figures or why it failed."""
        say(f"trial {claim.number}: {format_values(claim.values)}")
        try:
            with heartbeat(self.study, claim):
                self._run(claim)
        except KeyboardInterrupt:
            put_back(self.study, claim)
            raise
        except ClaimLost:
            say(f"trial {claim.number} was taken over by another worker")
        except Exception as error:  # a failed trial does not stop the others
            reason = str(error) or type(error).__name__
            say(f"trial {claim.number} failed: {reason}")
            fail(self.study, claim, reason)

    def _run(self, claim: Claim) -> None:
        cfg = self.trial_config(claim.values)
        criteria = self.study.criteria
        known = measure_config(cfg, criteria.measured)
        if reason := prune_reason_before_training(criteria, known):
            prune(self.study, claim, known, reason)
            return
        results = self.train_one(cfg, claim)
        needed = set() if results["pruned"] else criteria.measured
        figures = measure(claim.run, results, ALWAYS_MEASURED | needed)
        if results["pruned"]:
            prune(self.study, claim, figures, f"pruned after epoch {results['epochs']}")
        else:
            complete(self.study, claim, figures)
        say(f"trial {claim.number}: {format_values(figures)}")

    def trial_config(self, values: Values) -> Config:
        """A trial's own configuration. Raises `UserError` for values that exclude each other."""
        cfg = with_values(self.cfg, values)
        if self.cfg.STUDY.EPOCHS:
            cfg.TRAIN.EPOCHS, cfg.TRAIN.STEPS = self.cfg.STUDY.EPOCHS, 0
        cfg.freeze()
        check_combinations(cfg)
        return cfg

    def train_one(self, cfg: Config, claim: Claim) -> dict[str, Any]:
        """Train in the trial's run directory; returns what results.json holds."""
        run = claim.run
        while run.status().state == "running":  # locked by a worker that counted as dead
            self._check_held(claim)
            time.sleep(POLL_S)

        def report(epoch: int, abs_rel: float) -> bool:
            self._check_held(claim)
            return is_pruned_after_epoch(self.study.criteria, claim.trial, epoch, abs_rel)

        return train_for_study(self.study.run, run, cfg, self.cache, self.split, report, test=False)

    def _check_held(self, claim: Claim) -> None:
        if not is_held(self.study, claim):
            raise ClaimLost


@contextmanager
def heartbeat(study: Study, claim: Claim) -> Iterator[None]:
    """Record every STUDY.HEARTBEAT_S, from a thread, that this trial's worker is alive."""
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(study.cfg.STUDY.HEARTBEAT_S):
            study.storage.record_heartbeat(claim.trial._trial_id)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
