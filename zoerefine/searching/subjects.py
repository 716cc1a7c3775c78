"""What the study in a run directory searches, as its driver wrote it there."""

from typing import Any

from zoerefine.config import load_config, to_dict
from zoerefine.config.searched_keys import TreeKeys
from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.searching.launched_script import LaunchedScript
from zoerefine.searching.launched_study import open_study, recorded_tree
from zoerefine.searching.space import Parameter
from zoerefine.searching.space_reader import read_space
from zoerefine.searching.trial_record import settings_file
from zoerefine.searching.trial_runner import Subject


def open_subject(run: RunDir) -> Subject:
    """Our own training or a launched script. Raises `UserError` where there is no study."""
    if settings_file(run) != run.config_file:
        return LaunchedScript(open_study(run), run.path)
    if not run.config_file.exists():
        raise UserError(f"{run.path} is not a study: give the folder that a search wrote")
    from zoerefine.searching.own_training import OwnTraining  # imports torch

    return OwnTraining(load_config(run.config_file))


def recorded_space(run: RunDir) -> tuple[dict[str, Any], tuple[Parameter, ...]]:
    """The config of a study without searched values, and its space. Neither is looked up anew."""
    if settings_file(run) != run.config_file:
        tree, search = recorded_tree(run)
        return tree, read_space(search, TreeKeys(tree))
    cfg = load_config(run.config_file)
    return to_dict(cfg), read_space(cfg.SEARCH)
