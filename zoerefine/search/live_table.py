"""What people see of a study: a live table, or a line for each change where nobody watches."""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from rich.live import Live
from rich.table import Table

from zoerefine.progress import say
from zoerefine.registries import OBJECTIVES
from zoerefine.search.study import Study, excess_of, reason_of
from zoerefine.search.trial_worker import shown

SHOWN = 8  # of the best trials
EVERY_S = 1.0
COLOURS = {"RUNNING": "cyan", "FAIL": "red", "PRUNED": "yellow", "WAITING": "dim"}


@contextmanager
def board(study: Study, until: float) -> Iterator[Callable[[], None]]:
    """Yields a function that brings what people see up to date; it looks once a second."""
    console = Console(file=sys.stderr)
    opened = drawing(study, until, console) if console.is_terminal else telling(study, until)
    looked = 0.0
    with opened as update:

        def show() -> None:
            nonlocal looked
            if time.monotonic() - looked > EVERY_S:
                looked = time.monotonic()
                update()

        yield show
        update()


@contextmanager
def drawing(study: Study, until: float, console: Console) -> Iterator[Callable[[], None]]:
    """A table that is drawn anew."""
    with Live(drawn(study, until), console=console, auto_refresh=False) as live:
        yield lambda: live.update(drawn(study, until), refresh=True)


@contextmanager
def telling(study: Study, until: float) -> Iterator[Callable[[], None]]:
    """A line for each change, between two that sum up."""
    trials = study.trials()
    told = {trial.number: trial.state.name for trial in trials}
    say(summary(study, trials, until))
    yield lambda: tell_changes(study, told)
    say(summary(study, study.trials(), until))


def tell_changes(study: Study, told: dict[int, str]) -> None:
    """A line for each trial that is in another state than when last told."""
    trials = study.trials()
    for trial in trials:
        state = trial.state.name
        if told.get(trial.number) == state:
            continue
        told[trial.number] = state
        if state == "RUNNING":
            say(f"trial {trial.number} (of {study.budget}): {shown(trial.params)}")
        elif trial.state.is_finished():
            best = best_so_far(study, trials)
            say(f"trial {trial.number} {WORDS[state]}: {outcome(trial)}{best}")


WORDS = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}


def outcome(trial: FrozenTrial) -> str:
    """What came out of a trial."""
    if trial.state in (TrialState.FAIL, TrialState.PRUNED):
        return reason_of(trial)
    figures = shown(trial.user_attrs.get("figures", {}))
    over = "".join(f", {name} over its limit" for name in excess_of(trial))
    return figures + over


def best_so_far(study: Study, trials: Sequence[FrozenTrial]) -> str:
    """The best value of the first objective so far."""
    done = best_first(study, trials)
    if not done:
        return ""
    best = done[0]
    return f" (best {study.criteria.objectives[0]} {best.values[0]:.4g}, trial {best.number})"


def best_first(study: Study, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Completed trials within the limits, the best by the first objective first."""
    done = [t for t in trials if t.state == TrialState.COMPLETE and not excess_of(t)]
    maximize = OBJECTIVES.load(study.criteria.objectives[0]).direction == "maximize"
    return sorted(done, key=lambda trial: trial.values[0], reverse=maximize)


def summary(study: Study, trials: Sequence[FrozenTrial], until: float) -> str:
    """A study in a line."""
    states = [trial.state.name for trial in trials]
    parts = [f"{sum(t.state.is_finished() for t in trials)} of {study.budget} trials"]
    parts += [
        f"{states.count(name)} {word}"
        for name, word in (("RUNNING", "running"), ("PRUNED", "pruned"), ("FAIL", "failed"))
        if states.count(name)
    ]
    left = time_left(study, trials, until)
    return ", ".join(parts) + best_so_far(study, trials) + (f", about {left} left" if left else "")


def time_left(study: Study, trials: Sequence[FrozenTrial], until: float) -> str:
    """How long the trials that are left will take, as those that are done did; empty if unknown."""
    durations = [t.duration.total_seconds() for t in trials if t.duration is not None]
    left = study.budget - len(durations)
    if not durations or left <= 0:
        return ""
    seconds = statistics.median(durations) * -(-left // study.cfg.STUDY.WORKERS)
    if until:
        seconds = min(seconds, max(0.0, until - time.time()))
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def drawn(study: Study, until: float) -> Table:
    """The table as it stands: what runs, then the best."""
    trials = study.trials()
    table = Table(title=summary(study, trials, until), title_justify="left")
    for name in ("trial", "state", *study.criteria.objectives, "epochs", "values"):
        table.add_column(name, no_wrap=name != "values")
    running = [t for t in trials if t.state == TrialState.RUNNING]
    best = best_first(study, trials)[:SHOWN]
    failed = [t for t in trials if t.state == TrialState.FAIL][-2:]
    for trial in (*running, *best, *failed):
        colour = COLOURS.get(trial.state.name, "green")
        figures = [f"{value:.4g}" for value in trial.values or []]
        figures += [""] * (len(study.criteria.objectives) - len(figures))
        epochs = str(max(trial.intermediate_values, default=-1) + 1 or "")
        text = reason_of(trial) if trial in failed else shown(trial.params)
        state = f"[{colour}]{trial.state.name.lower()}[/]"
        table.add_row(str(trial.number), state, *figures, epochs, text)
    return table
