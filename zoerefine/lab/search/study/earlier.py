"""An earlier study from which another one starts, its best trials, and whether two can be compared.

Values are comparable where everything that decides a trial is the same, except what is searched:
commit and uncommitted changes, data, and every setting that neither study searches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.equal_values import differing, same_data
from zoerefine.base.yaml.keys import value_at, with_values
from zoerefine.base.yaml.read import read_yaml
from zoerefine.lab.search.script.study import recorded_space
from zoerefine.lab.search.space.space import (
    Parameter,
    all_keys,
    params_of,
    suggest,
    unknown_parameter,
)
from zoerefine.lab.search.study.storage import database_errors, silence_optuna, storage_url
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import exceeded_limits, settings_file, without_duplicates
from zoerefine.lab.search.subject import Subject


def load_study(run: RunDir) -> optuna.Study:
    """The study of a folder, opened without writing. Raises `UserError` as `find_study`."""
    silence_optuna()
    storage, number = find_study(run, "")
    return optuna.load_study(
        study_name=storage.get_study_name_from_id(number), storage=storage, sampler=None
    )


def find_study(run: RunDir, storage: str) -> tuple[optuna.storages.RDBStorage, int]:
    """A study's database, and the study's id in it. Writes nothing.

    Raises `UserError` where there is no study, or its database cannot be read.
    """
    # Not load_config: a study of another commit may have keys that this one lacks.
    file = settings_file(run)
    config = read_yaml(file).tree if file.exists() else {}
    if "STUDY" not in config:
        raise UserError(f"{run.path} is not a study: give the folder that a search wrote")
    url = storage_url(storage or config["STUDY"].get("STORAGE", ""), run.path)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise UserError(f"{run.path} is not a study: there is no database {url.database}")
    name = config["RUN"]["NAME"]
    database = open_database(url)
    studies = database.get_all_studies() if database else []
    numbers = {one.study_name: one._study_id for one in studies}
    if database is None or name not in numbers:
        raise UserError(f"{url} has no study {name}, to which {run.path} belongs")
    return database, numbers[name]


def open_database(url: sqlalchemy.URL) -> optuna.storages.RDBStorage | None:
    """A study database, opened without writing to it; None where it has no tables yet.

    Raises `UserError` where it cannot be read.
    """
    with database_errors(url):
        engine = sqlalchemy.create_engine(url)
        is_empty = not sqlalchemy.inspect(engine).has_table("studies")
        engine.dispose()
        if is_empty:  # RDBStorage would create its tables
            return None
        return optuna.storages.RDBStorage(
            url.render_as_string(hide_password=False),
            engine_kwargs={"pool_pre_ping": True},  # the server may have been restarted
            skip_compatibility_check=True,  # optuna-dashboard shows a message
            skip_table_creation=True,
        )


TRIED_FIRST = 5  # best trials of a study
NAMED = 3  # differences that a message lists
LONGEST = 40  # characters of a value in a message
# Part of a study's identity that need not be the same: what is searched, and limits, which are
# computed anew from the figures. The objectives are compared before.
FREE = ("SEARCH", "STUDY.OBJECTIVES", "STUDY.CONSTRAINTS")


@dataclass(frozen=True)
class EarlierStudy:
    """A study on disk.

    Attributes:
        optuna: read without writing.
        tree: its config without searched values.
    """

    run: RunDir
    optuna: optuna.Study
    tree: Mapping[str, Any]
    space: tuple[Parameter, ...]

    @property
    def id(self) -> str:
        return str(self.optuna.user_attrs["id"])

    def trials(self) -> list[FrozenTrial]:
        """The trials that count."""
        return without_duplicates(self.optuna.get_trials(deepcopy=False))

    def tree_of(self, trial: FrozenTrial) -> Mapping[str, Any]:
        """The config of one of its trials."""
        return with_values(self.tree, suggest(self.space, FixedTrial(trial.params)))  # type: ignore[arg-type]

    def best_of(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """The best of its completed trials by its first objective, within its limits first."""
        sign = -1 if self.optuna.directions[0].name == "MAXIMIZE" else 1
        done = [one for one in trials if one.state == TrialState.COMPLETE]
        done.sort(key=lambda one: (len(exceeded_limits(one)) > 0, sign * one.values[0]))
        return done[:TRIED_FIRST]


def read_study(path: Path) -> EarlierStudy:
    """The study in a folder. Raises `UserError` where there is none, or it cannot be read."""
    run = RunDir(path.resolve())
    earlier = EarlierStudy(run, load_study(run), *recorded_space(run))
    for trial in earlier.trials():
        if other := unknown_parameter(earlier.space, trial.params):
            raise UserError(
                f"{path} was begun by a version of zoerefine that named its parameters otherwise "
                f"({other}): give configs of its trials to --enqueue"
            )
    return earlier


def best_trees(path: Path) -> list[Mapping[str, Any]]:
    """The configs of a study's best trials, the best first. Raises `UserError` for none."""
    study = read_study(path)
    if best := study.best_of(study.trials()):
        return [study.tree_of(trial) for trial in best]
    raise UserError(f"{path} has no completed trial: give another study, or a config")


def open_earlier(path: Path, subject: Subject, run: RunDir) -> EarlierStudy:
    """Open a study from which that of `subject` in `run` starts.

    Raises `UserError` where there is no study, or it has other objectives or directions.
    """
    if path.resolve() == run.path.resolve():
        raise UserError(f"--from {path} is this study itself: the same command continues it")
    earlier = read_study(path)
    found = earlier.optuna
    theirs = [
        f"{direction.name.lower()} {name}"
        for name, direction in zip(found.metric_names or [], found.directions, strict=False)
    ]
    ours = [f"{direction} {name}" for name, direction in subject.criteria.directions.items()]
    if theirs != ours:
        raise UserError(
            f"--from {path} has other objectives: {', '.join(theirs) or 'none'} there, "
            f"{', '.join(ours)} here"
        )
    if not {"id", "identity"} <= set(found.user_attrs):
        raise UserError(f"--from {path} has no settings yet: its search was stopped as it began")
    return earlier


def comparison_fault(study: Study, earlier: EarlierStudy) -> str:
    """Why the values of two studies cannot be compared; empty where they can."""
    if settings_file(earlier.run).name != settings_file(study.run).name:
        return "one is a study of a script, the other of zoerefine's own training"
    searched = all_keys(study.space) | all_keys(earlier.space)
    ours, theirs = (fixed(one.user_attrs, searched) for one in (study.optuna, earlier.optuna))
    different = [
        f"{key} is {shown(there)} there and {shown(here)} here"
        for key, (here, there) in differing(ours, theirs).items()
    ]
    more = len(different) - NAMED
    return ", ".join(different[:NAMED]) + (f", and {more} more differ" if more > 0 else "")


def fixed(attributes: Mapping[str, Any], searched: set[str]) -> dict[str, Any]:
    """What decides all trials of a study alike, by its attributes in the database."""
    found = {
        key: value
        for key, value in attributes["identity"].items()
        if not any(is_inside(key, one) for one in FREE)
        and not any(is_inside(key, one) or is_inside(one, key) for one in searched)
    }
    return {**found, "the digest of the data": attributes.get("data")}


def is_inside(key: str, group: str) -> bool:
    """Whether a key is another one or below it."""
    return key == group or key.startswith(f"{group}.")


def shown(value: Any) -> str:
    """A value of an identity in a message."""
    text = repr(value) if value == "" or value is None else str(value)
    is_digest = isinstance(value, str) and len(value) in (40, 64) and value.isalnum()
    return text[:12] if is_digest else text[:LONGEST]


def params_inside(
    tree: Mapping[str, Any], space: Sequence[Parameter], earlier: EarlierStudy, trial: FrozenTrial
) -> FixedTrial | None:
    """A trial's parameters in another study's space; None where it lies outside.

    It lies inside where the other study's config, with these parameters, has the trial's value at
    every key that one of the two studies searches.

    Args:
        tree: the other study's config without searched values.
    """
    theirs = earlier.tree_of(trial)
    params = params_of(space, theirs)
    if params is None:
        return None
    found = FixedTrial(params)
    ours = with_values(tree, suggest(space, found))  # type: ignore[arg-type]
    searched = all_keys(space) | all_keys(earlier.space)
    same = all(same_data(value_at(theirs, key), value_at(ours, key)) for key in searched)
    return found if same else None
