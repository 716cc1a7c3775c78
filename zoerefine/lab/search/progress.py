"""A study on the terminal: a live table or one line for each change, and what `show` says of it."""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from zoerefine.base.errors import UserError
from zoerefine.base.messages import is_hidden, say
from zoerefine.base.progress import duration
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.search.study.earlier import load_study
from zoerefine.lab.search.study.ending import count_begun, may_begin, planned
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import (
    STATE_WORDS,
    best_trials,
    exceeded_limits,
    format_values,
    is_claimed,
    is_known,
    reason_of,
    values_at_steps,
    without_duplicates,
)

BEST_ROWS, FAILED_ROWS = 8, 2  # of the table
REFRESH_S = 1.0
COLORS = {"RUNNING": "cyan", "FAIL": "red", "PRUNED": "yellow", "WAITING": "dim"}


@contextmanager
def study_progress(study: Study, until: float) -> Iterator[Callable[[], None]]:
    """Yields a function that refreshes the display, at most once a second."""
    console = Console(file=sys.stderr)
    live = console.is_terminal and not is_hidden()
    display = live_table(study, until, console) if live else log(study, until)
    refreshed = 0.0
    with display as refresh:

        def refresh_if_due() -> None:
            nonlocal refreshed
            if time.monotonic() - refreshed > REFRESH_S:
                refreshed = time.monotonic()
                refresh()

        try:
            yield refresh_if_due
        finally:  # also the trials that ended just before an error
            refresh()


@contextmanager
def live_table(study: Study, until: float, console: Console) -> Iterator[Callable[[], None]]:
    """A table that is redrawn in place."""
    with Live(make_table(study, until), console=console, auto_refresh=False) as live:
        yield lambda: live.update(make_table(study, until), refresh=True)


@contextmanager
def log(study: Study, until: float) -> Iterator[Callable[[], None]]:
    """A line for each change, between two summaries."""
    trials = study.trials()
    logged = {trial.number: state_of(trial) for trial in trials}
    say(summary(study, trials, until))
    yield lambda: log_changes(study, logged)
    say(summary(study, study.trials(), until))


def log_changes(study: Study, logged: dict[int, tuple[str, str]]) -> None:
    """Print a line for each trial whose state is not the one in `logged`, and update that."""
    trials = study.trials()
    for trial in trials:
        state = state_of(trial)
        if logged.get(trial.number) == state or not has_values(trial):
            continue
        logged[trial.number] = state
        if trial.state == TrialState.RUNNING:
            say(f"trial {trial.number} {start_of(study, trials, trial)}")
        elif trial.state.is_finished():
            best = best_so_far(study, trials)
            say(f"trial {trial.number} {STATE_WORDS[trial.state.name]}: {outcome(trial)}{best}")


def state_of(trial: FrozenTrial) -> tuple[str, str]:
    """A trial's state, and which claim it is: another worker's is another one."""
    return trial.state.name, trial.user_attrs.get("claim", "")


def has_values(trial: FrozenTrial) -> bool:
    """Whether a trial has started; between the steps of its claim its values are incomplete."""
    return trial.state != TrialState.WAITING and is_claimed(trial)


def start_of(study: Study, trials: Sequence[FrozenTrial], trial: FrozenTrial) -> str:
    """How a trial began, and with which values."""
    values = format_values(trial.params)
    if trial.user_attrs.get("lost_claims"):
        return f"continued by another worker: {values}"
    started = sum(has_values(one) and one.number <= trial.number for one in trials)
    return f"started ({started} of {in_all(study, trials)}): {values}"


def in_all(study: Study, trials: Sequence[FrozenTrial]) -> int:
    """How many trials the study has; STUDY.TRIALS may be smaller than when they began."""
    return max(planned(study, trials), count_begun(trials))


def outcome(trial: FrozenTrial) -> str:
    """The figures of a trial, or why it has none."""
    if trial.state in (TrialState.FAIL, TrialState.PRUNED):
        return reason_of(trial)
    exceeded = "".join(f", {name} above its limit" for name in exceeded_limits(trial))
    return format_values(trial.user_attrs.get("figures", {})) + exceeded


def best_so_far(study: Study, trials: Sequence[FrozenTrial]) -> str:
    """The best value of the first objective so far."""
    done = best_first(study, trials)
    if not done:
        return ""
    name, best = study.criteria.objectives[0], done[0]
    return f" (best {name} {best.values[0]:.4g}, trial {best.number})"


def best_first(study: Study, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Completed trials within the limits, the best by the first objective first."""
    done = [t for t in trials if t.state == TrialState.COMPLETE and not exceeded_limits(t)]
    maximize = study.criteria.directions[study.criteria.objectives[0]] == "maximize"
    return sorted(done, key=lambda trial: trial.values[0], reverse=maximize)


def summary(study: Study, trials: Sequence[FrozenTrial], until: float) -> str:
    """A study in one line."""
    own = [trial for trial in trials if not is_known(trial)]
    states = [trial.state.name for trial in own]
    ended = sum(trial.state.is_finished() for trial in own)
    parts = [f"{ended} of {in_all(study, trials)} trials ended"]
    parts += [f"{len(trials) - len(own)} known before"] if len(own) < len(trials) else []
    parts += [
        f"{states.count(name)} {STATE_WORDS[name]}"
        for name in ("RUNNING", "PRUNED", "FAIL")
        if name in states
    ]
    left = time_left(study, trials, until)
    return ", ".join(parts) + best_so_far(study, trials) + (f", about {left} left" if left else "")


def time_left(study: Study, trials: Sequence[FrozenTrial], until: float) -> str:
    """How long a study still takes, by the median of its trials; empty if unknown or at its end."""
    own = [trial for trial in trials if not is_known(trial)]
    durations = [t.duration.total_seconds() for t in own if t.duration is not None]
    left = trials_left(study, trials, until)
    if not durations or not left:
        return ""
    trial_s = statistics.median(durations)
    seconds = trial_s * -(-left // study.options.WORKERS)
    if until:  # a trial that began before it is finished
        seconds = min(seconds, max(0.0, until - time.time()) + trial_s)
    return duration(seconds)


def trials_left(study: Study, trials: Sequence[FrozenTrial], until: float) -> int:
    """How many trials have not ended: those that have begun, and those that may begin."""
    if until and time.time() >= until:
        return sum(trial.state == TrialState.RUNNING for trial in trials)
    ended = sum(trial.state.is_finished() and not is_known(trial) for trial in trials)
    last = in_all(study, trials) if may_begin(study, trials) else count_begun(trials)
    return last - ended


def make_table(study: Study, until: float) -> Table:
    """The running trials, the best, and the last that failed."""
    trials = study.trials()
    table = Table(title=summary(study, trials, until), title_justify="left")
    progress = "epochs" if study.subject.steps else "step"
    for name in ("trial", "state", *study.criteria.objectives, progress, "values"):
        table.add_column(name, no_wrap=name != "values")
    running = [t for t in trials if t.state == TrialState.RUNNING and has_values(t)]
    failed = [t for t in trials if t.state == TrialState.FAIL][-FAILED_ROWS:]
    for trial in (*running, *best_first(study, trials)[:BEST_ROWS], *failed):
        table.add_row(*cells(study, trial))
    return table


def cells(study: Study, trial: FrozenTrial) -> list[str]:
    """A trial's row of the table."""
    name = trial.state.name
    figures = [f"{value:.4g}" for value in trial.values or []]
    figures += [""] * (len(study.criteria.objectives) - len(figures))
    steps = values_at_steps(trial)
    epochs = str(max(steps) + (study.subject.steps > 0)) if steps else ""  # epochs count from 0
    text = reason_of(trial) if name == "FAIL" else format_values(trial.params)
    state = f"[{COLORS.get(name, 'green')}]{STATE_WORDS[name]}[/]"
    return [str(trial.number), state, *figures, epochs, escape(text)]


SHOWN = 8  # points of a Pareto front
KNOWN = "known before"


def study_lines(run: RunDir) -> list[str]:
    """The lines of a study; the reason where its database cannot be read."""
    try:
        facts = study_facts(run)
    except UserError as fault:
        return ["its study:", f"  note: {fault}"]
    aims = ", ".join(f"{direction} {name}" for name, direction in facts["objectives"].items())
    counts = facts["trials"]
    own = sum(counts.values()) - counts.get(KNOWN, 0)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    trials = f"{own}: {states}" if states else "0"
    return [f"its study, {aims}:", row("trials", trials), *best_lines(run, facts)]


def study_facts(run: RunDir) -> dict[str, Any]:
    """The same for programs. Raises `UserError` where the database cannot be read."""
    study = load_study(run)
    objectives = zip(study.directions, study.metric_names or [], strict=False)
    trials = without_duplicates(study.get_trials(deepcopy=False))
    counts = Counter(KNOWN if is_known(one) else STATE_WORDS[one.state.name] for one in trials)
    return {
        "objectives": {name: direction.name.lower() for direction, name in objectives},
        "trials": {word: counts[word] for word in (*STATE_WORDS.values(), KNOWN) if counts[word]},
        "best": [
            {
                "trial": one.number,
                "parameters": one.params,
                "metrics": one.user_attrs.get("figures", {}),
            }
            for one in best_trials(study)
        ],
    }


def row(name: str, text: object) -> str:
    return f"  {name:<9} {text}"


def best_lines(run: RunDir, facts: dict[str, Any]) -> list[str]:
    """The best trial or the points of the Pareto front, each with its config if it is written."""
    best, several = facts["best"], len(facts["objectives"]) > 1
    lines = []
    for one in best[:SHOWN]:
        values = format_values(one["metrics"]), format_values(one["parameters"])
        lines.append(
            row("front" if several else "best", f"trial {one['trial']}, {'; '.join(values)}")
        )
        files = run.path.glob(f"pareto-{one['trial']:04d}.*" if several else "best.*")
        lines += [row("", path) for path in files if path.is_file()]
    return lines + ([row("", f"and {len(best) - SHOWN} more")] if len(best) > SHOWN else [])
