"""What the study in a run directory searches, as its driver wrote it there."""

from zoerefine.config import load_config
from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.searching.launched_script import LaunchedScript
from zoerefine.searching.launched_study import open_study
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
