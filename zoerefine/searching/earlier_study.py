"""An earlier study from which another one starts, and whether the two can be compared.

Values are comparable where everything that decides a trial is the same, except what is searched:
commit and uncommitted changes, data, and every setting that neither study searches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FixedTrial, FrozenTrial

from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.searching.config_values import value_at, with_values
from zoerefine.searching.existing_study import find_study
from zoerefine.searching.space import Parameter, all_keys, params_of, suggest
from zoerefine.searching.storage import silence_optuna
from zoerefine.searching.study import Study
from zoerefine.searching.subjects import recorded_space
from zoerefine.searching.trial_record import settings_file, without_duplicates
from zoerefine.searching.trial_runner import Subject
from zoerefine.yaml_dump import same_data

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


def open_earlier(path: Path, subject: Subject, run: RunDir) -> EarlierStudy:
    """Open a study from which that of `subject` in `run` starts.

    Raises `UserError` where there is no study, or it has other objectives or directions.
    """
    there = RunDir(path.resolve())
    if there.path == run.path.resolve():
        raise UserError(f"--from {path} is this study itself: the same command continues it")
    silence_optuna()
    storage, number = find_study(there, "")
    found = optuna.load_study(
        study_name=storage.get_study_name_from_id(number), storage=storage, sampler=None
    )
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
        raise UserError(f"--from {path} was made by an older version, without its settings")
    return EarlierStudy(there, found, *recorded_space(there))


def comparison_fault(study: Study, earlier: EarlierStudy) -> str:
    """Why the values of two studies cannot be compared; empty where they can."""
    if settings_file(earlier.run).name != settings_file(study.run).name:
        return "one is a study of a script, the other of zoerefine's own training"
    searched = all_keys(study.space) | all_keys(earlier.space)
    ours, theirs = (fixed(one.user_attrs, searched) for one in (study.optuna, earlier.optuna))
    different = [
        f"{key} is {shown(theirs.get(key))} there and {shown(ours.get(key))} here"
        for key in [*ours, *(key for key in theirs if key not in ours)]
        if ours.get(key) != theirs.get(key)
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
