"""The end of a study: its best configurations are written, and what follows is done."""

from zoerefine.progress import say
from zoerefine.searching.space import suggest
from zoerefine.searching.study import Study
from zoerefine.searching.trial_record import format_values, is_known


def publish_best(study: Study) -> None:
    """Publish the best trial as `best`, or each point of the Pareto front as `pareto-<trial>`.

    Raises `UserError` where no trial was completed within the limits.
    """
    several = len(study.criteria.objectives) > 1
    for trial in study.best():
        name = f"pareto-{trial.number:04d}" if several else "best"
        source = f" ({trial.user_attrs['known_from']['run']})" if is_known(trial) else ""
        say(f"{name}: trial {trial.number}{source}, {format_values(trial.user_attrs['figures'])}; "
            f"{format_values(trial.params)}")  # fmt: skip
        values = suggest(study.space, trial)  # type: ignore[arg-type]  # it has all parameters
        study.subject.publish(study.run, name, values)
