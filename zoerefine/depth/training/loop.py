"""The training loop: from a packed cache to the best weights and their metrics."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.base import ranks
from zoerefine.base.config import Config
from zoerefine.base.files.atomic import write_json
from zoerefine.base.files.images import write_png
from zoerefine.base.messages import counted, say, warn
from zoerefine.base.progress import bar
from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.cache.verification import BackgroundVerification, DamagedCache
from zoerefine.depth.data.inspect.inspection import check_measured
from zoerefine.depth.data.split import Split, write_or_check_split
from zoerefine.depth.training import checkpoint, ending
from zoerefine.depth.training.binding import (
    binding,
    refuse_another_checkpoint,
    require_recorded,
)
from zoerefine.depth.training.failures import WatchedStep, check_finite, explained_failures
from zoerefine.depth.training.point_inputs import training_transform
from zoerefine.depth.training.run_log import RunLog
from zoerefine.depth.training.start_weights import seen_before
from zoerefine.depth.training.trainer import Trainer
from zoerefine.depth.training.usage import StepTimer

# Called with the epoch and the validation metrics after each evaluation; True ends the run.
Report = Callable[[int, Mapping[str, float]], bool]

SHOWN_METRICS = (SELECTION_METRIC, "rmse", "delta1")


def train(
    cfg: Config,
    run: RunDir,
    cache: Cache,
    split: Split,
    report: Report | None = None,
    test: bool = True,
) -> dict[str, Any]:
    """Train a refiner, or resume from the run's last checkpoint, to bit-exact the same weights.

    Args:
        cfg: the resolved configuration.
        run: where everything is written; the caller holds its lock.
        cache: the packed data set.
        split: training, validation and test scenes.
        report: ends the run early by returning True (pruning).
        test: whether to evaluate on the test scenes at the end.

    Returns:
        The content of `results.json`.

    Raises:
        UserError: the checkpoints belong to another run; a part of the split has no usable pixel;
            or a loss or gradient is not finite, and a file names the frames of that batch.
        DamagedCache: packed records have changed since they were packed.
        KeyboardInterrupt: a signal stopped the run; a checkpoint has been written.
    """
    if ranks.is_writer():
        write_or_check_split(split, run.split_file)
    check_measured(cache, split)
    facts = run.recorded()
    bound = binding(cfg, cache, facts)
    with explained_failures(), BackgroundVerification(cache) as verification:
        trainer = Trainer(cfg, cache, split)
        require_recorded(trainer.loaded_digests, facts)
        loop = Loop(cfg, run, trainer, report, bound, verification)
        try:
            with ending.StopSignals() as loop.stop:
                loop.run_epochs()
            results = ending.final_results(loop.trainer, run, test) | loop.outcome
            results |= seen_before(facts, split)
            verification.finish()
        except DamagedCache:
            if ranks.is_writer():
                loop.writer.wait()
                checkpoint.set_aside(run)
            raise
    if ranks.is_writer():
        write_json(run.results_file, results)
    ranks.wait_for_all()
    return results


class Loop:
    """The loop over epochs and steps in one process: logs, checkpoints, reasons to stop."""

    def __init__(
        self,
        cfg: Config,
        run: RunDir,
        trainer: Trainer,
        report: Report | None,
        bound: dict[str, Any],
        verification: BackgroundVerification,
    ) -> None:
        self.cfg, self.run, self.trainer, self.report = cfg, run, trainer, report
        self.bound, self.verification = bound, verification
        state = checkpoint.load_checkpoint(run.checkpoints)
        refuse_another_checkpoint(run, state, bound)
        checkpoint.rename_damaged(run.checkpoints, state)
        if state:
            trainer.restore(state)
            say(f"{run.path}: going on from step {trainer.step} of {trainer.steps}")
        earlier = state.get("threads", []) if state else []
        self.threads = [*dict.fromkeys([*earlier, threads()])]
        if len(self.threads) > 1:
            warn(f"{run.path} began with {counted(self.threads[0], 'thread')} on its processor and "
                 f"goes on with {threads()}, or did so before: its weights are another run's; "
                 "OMP_NUM_THREADS says how many")  # fmt: skip
        self.pruned = bool(state and state["pruned"])
        if ranks.is_writer():
            self.log = RunLog(run, state["log_offset"] if state else 0, trainer.step)
        self.writer = checkpoint.CheckpointWriter(
            run.checkpoints, cfg.TRAIN.CHECKPOINTS, cfg.TRAIN.CHECKPOINT_S
        )
        self.timer = StepTimer(trainer.device)
        self.stop = ending.StopSignals()

    def run_epochs(self) -> None:
        """Train the remaining epochs."""
        epochs, sampler = self.trainer.epochs, self.trainer.sampler
        first, batches = sampler.locate(self.trainer.step)
        images = [sampler.samples(epoch) for epoch in range(epochs)]
        done = sum(images[:first]) + batches * sampler.batch
        total = min(sum(images), self.trainer.steps * sampler.batch)
        with ExitStack() as closing, bar(total, "training", "img", done) as self.bar:
            if ranks.is_writer():
                closing.callback(self.log.close)
            closing.callback(self.writer.wait)
            for epoch in range(first, epochs):
                if self.ended:
                    break
                self.run_epoch(epoch)
                last = epoch + 1 == epochs
                if last or (epoch + 1) % self.cfg.TRAIN.EVAL_EVERY == 0:
                    self.after_epoch(epoch)
                self.save_if_due(last=self.ended)

    def run_epoch(self, epoch: int) -> None:
        """Train on the remaining batches of an epoch."""
        transform = training_transform(self.cfg, epoch)
        batches = self.trainer.prefetch(self.trainer.loader, transform)
        end = min(self.trainer.steps, self.trainer.sampler.steps(epoch + 1))
        previous: WatchedStep | None = None
        self.timer.restart()
        for batch in batches:
            loss, terms = self.trainer.train_step(batch)
            images = len(batch.index) * ranks.world_size()  # about as many on every rank
            self.timer.step(images, batches.wait_s, batches.copy_s)
            self.bar.update(images)
            watched = WatchedStep(self.trainer.step, loss, self.trainer.grad_norm, batch.index)
            # Checked one step later, so that a GPU is busy with the next step meanwhile.
            check_finite(self.trainer, self.run, previous)
            previous = watched
            if ranks.is_writer() and self.trainer.step % self.cfg.TRAIN.LOG_EVERY == 0:
                self.log_step(epoch, loss, terms)
            if self.trainer.step == self.trainer.steps:
                break
            if self.trainer.step < end:
                self.save_if_due(watched=watched)
        check_finite(self.trainer, self.run, previous)

    def log_step(self, epoch: int, loss: Tensor, terms: dict[str, Tensor]) -> None:
        """Log a row: the loss of this step, and the time of steps since the last row, in parts."""
        values = {name: value.item() for name, value in terms.items()}
        timing = self.timer.take()
        self.bar.set_postfix_str(f"loss {loss.item():.3f}, data wait {timing['wait_share']:.1%}")
        row = {"loss": loss.item(), **values, **timing}
        row |= {"lr": self.trainer.schedule.rate(self.trainer.step - 1),
                "grad_norm": self.trainer.grad_norm.item()}  # fmt: skip
        self.log.write("train", self.trainer.step, epoch, row)

    def after_epoch(self, epoch: int) -> None:
        """Evaluate on the validation scenes and save the best weights; `report` may end the run."""
        trainer = self.trainer
        if not trainer.split.val:
            return
        metrics = trainer.evaluate(trainer.split.val, losses=True)
        score = metrics["refined"][SELECTION_METRIC]
        better = score < trainer.best
        trainer.evaluations_since_best = 0 if better else trainer.evaluations_since_best + 1
        if better:
            trainer.best = score
        if ranks.is_writer():
            if better:
                checkpoint.save_best(self.run, trainer.weights.state_dict())
            self.log_evaluation(epoch, metrics, better)
            stop = bool(self.report and self.report(epoch, metrics["refined"]))
            self.pruned = stop and not self.ended  # at its end there is nothing left to save
        self.pruned = ranks.broadcast_from_writer(self.pruned)

    def log_evaluation(self, epoch: int, metrics: dict[str, Any], better: bool) -> None:
        """Log a row and the pictures, and print a line of the table of epochs."""
        step = self.trainer.step
        del metrics["scenes"]
        self.log.write("val", step, epoch, metrics.pop("losses", {}) | metrics)
        pictures = dict(self.trainer.pictures(self.trainer.split.val))
        for name, picture in pictures.items():
            self.log.picture(name, step, picture)
        if better and pictures:
            write_png(self.run.validation_picture, np.concatenate(list(pictures.values())))
        if self.cfg.TRAIN.HISTOGRAMS:
            self.log.histograms(step, self.trainer.refiner)
        say(epoch_line(epoch, self.trainer.epochs, metrics, self.trainer.best))

    @property
    def ended(self) -> bool:
        """Whether training is over; also true of a finished run that is resumed."""
        return self.pruned or self.out_of_patience or self.trainer.step >= self.trainer.steps

    @property
    def outcome(self) -> dict[str, Any]:
        """How training ended, and its speed, for results.json."""
        found = {"pruned": self.pruned, "stopped_early": self.out_of_patience}
        several = {"threads": self.threads} if len(self.threads) > 1 else {}
        return found | several | self.timer.totals()

    @property
    def out_of_patience(self) -> bool:
        """Whether TRAIN.PATIENCE evaluations in a row were no better than the best."""
        return 0 < self.cfg.TRAIN.PATIENCE <= self.trainer.evaluations_since_best

    def save_if_due(self, last: bool = False, watched: WatchedStep | None = None) -> None:
        """Write a checkpoint when one is due, or when a signal asks the run to stop.

        `watched` is the last step: if it is not finite, no checkpoint is written. Raises
        `DamagedCache` on all ranks if one of them has found damaged records.
        """
        due = last or self.writer.is_due
        # Ranks must agree: a signal may reach one rank a step before another, clocks differ, and
        # one rank verifies the records.
        wanted = torch.tensor(
            [self.stop.requested, due, self.verification.failed], dtype=torch.int64
        )
        stop, due, failed = map(bool, ranks.max_over_ranks(wanted))
        if failed:
            self.verification.check()
        if not (stop or due):
            return
        check_finite(self.trainer, self.run, watched)
        self.writer.restart_clock()
        if ranks.is_writer():
            state = self.trainer.state()
            state |= {"pruned": self.pruned, "log_offset": self.log.offset, "binding": self.bound}
            state |= {"pseudo": self.trainer.cache.pseudo.as_json(), "threads": self.threads}
            self.writer.save(self.trainer.step, state)
        if stop:
            self.writer.wait()
            raise KeyboardInterrupt


def threads() -> int:
    """How many threads compute on a CPU, which decides how its sums are rounded; 0 on GPUs."""
    return 0 if torch.cuda.is_available() else torch.get_num_threads()


def epoch_line(epoch: int, epochs: int, metrics: dict[str, Any], best: float) -> str:
    """A line of the table of epochs."""
    pseudo, refined = metrics["pseudo"], metrics["refined"]
    first, *others = (
        f"{name} {refined[name]:.4f} (pseudo {pseudo[name]:.4f})" for name in SHOWN_METRICS
    )
    others = [one.replace("pseudo ", "") for one in others]
    mark = "  best" if refined[SELECTION_METRIC] <= best else ""
    return "  ".join([f"epoch {epoch + 1:>{len(str(epochs))}}/{epochs}", first, *others]) + mark
