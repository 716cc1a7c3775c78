"""What `zoerefine show` says about a study: its trials by state, and the best with its config."""

from collections import Counter
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.search.study.earlier import load_study
from zoerefine.lab.search.study.trials import (
    STATE_WORDS,
    best_trials,
    format_values,
    is_known,
    without_duplicates,
)

SHOWN = 8  # points of a Pareto front


def study_lines(run: RunDir) -> list[str]:
    """The lines of a study; the reason where its database cannot be read."""
    try:
        study = load_study(run)
    except UserError as fault:
        return ["its study:", f"  note: {fault}"]
    objectives = zip(study.directions, study.metric_names or [], strict=False)
    aims = ", ".join(f"{direction.name.lower()} {name}" for direction, name in objectives)
    return [
        f"its study, {aims}:",
        row("trials", count_line(without_duplicates(study.get_trials(deepcopy=False)))),
        *best_lines(run, study),
    ]


def study_facts(run: RunDir) -> dict[str, Any]:
    """The same for programs. Raises `UserError` where the database cannot be read."""
    study = load_study(run)
    objectives = zip(study.directions, study.metric_names or [], strict=False)
    trials = without_duplicates(study.get_trials(deepcopy=False))
    return {
        "objectives": {name: direction.name.lower() for direction, name in objectives},
        "trials": Counter(
            "known before" if is_known(one) else STATE_WORDS[one.state.name] for one in trials
        ),
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


def count_line(trials: list[FrozenTrial]) -> str:
    """How many trials there are in each state: `5: 3 completed, 1 pruned, 1 waiting`."""
    own = Counter(trial.state.name for trial in trials if not is_known(trial))
    parts = [f"{own[name]} {word}" for name, word in STATE_WORDS.items() if own[name]]
    known = len(trials) - own.total()
    parts += [f"{known} known before"] if known else []
    return f"{own.total()}" + (f": {', '.join(parts)}" if parts else "")


def best_lines(run: RunDir, study: optuna.Study) -> list[str]:
    """The best trial or the points of the Pareto front, each with its config if it is written."""
    best = best_trials(study)
    several = len(study.directions) > 1
    lines = []
    for trial in best[:SHOWN]:
        figures = format_values(trial.user_attrs.get("figures", {}))
        text = f"trial {trial.number}, {figures}; {format_values(trial.params)}"
        lines.append(row("front" if several else "best", text))
        files = run.path.glob(f"pareto-{trial.number:04d}.*" if several else "best.*")
        lines += [row("", path) for path in files if path.is_file()]
    return lines + ([row("", f"and {len(best) - SHOWN} more")] if len(best) > SHOWN else [])
