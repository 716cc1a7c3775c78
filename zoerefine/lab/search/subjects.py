"""What the study in a run directory searches, as its driver wrote it there."""

from typing import Any

from zoerefine.base.config import load_config, to_dict
from zoerefine.base.config.searched_keys import TreeKeys
from zoerefine.base.errors import UserError
from zoerefine.base.registries import OWN_TRAINING
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.search.script.study import open_study, recorded_tree
from zoerefine.lab.search.script.trials import LaunchedScript
from zoerefine.lab.search.space.reader import read_space
from zoerefine.lab.search.space.space import Parameter
from zoerefine.lab.search.study.trials import settings_file
from zoerefine.lab.search.subject import Subject


def open_subject(run: RunDir) -> Subject:
    """Our own training or a launched script. Raises `UserError` where there is no study."""
    if settings_file(run) != run.config_file:
        return LaunchedScript(open_study(run), run.path)
    if not run.config_file.exists():
        raise UserError(f"{run.path} is not a study: give the folder that a search wrote")
    subject: Subject = OWN_TRAINING.load("subject")(load_config(run.config_file))
    return subject


def recorded_space(run: RunDir) -> tuple[dict[str, Any], tuple[Parameter, ...]]:
    """The config of a study without searched values, and its space. Neither is looked up anew."""
    if settings_file(run) != run.config_file:
        tree, search = recorded_tree(run)
        return tree, read_space(search, TreeKeys(tree))
    cfg = load_config(run.config_file)
    return to_dict(cfg), read_space(cfg.SEARCH)
