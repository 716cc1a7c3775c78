"""What the dashboard shows for a trial: a note with its outcome, and its validation picture."""

import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna

from zoerefine.base.files.atomic import replacing
from zoerefine.base.run_dir import RunDir
from zoerefine.base.secrets.redaction import hide_secrets


def describe(
    study: optuna.Study, trial: optuna.Trial, run: RunDir, details: str, artifacts: Path
) -> None:
    """Write a trial's note, and attach its run's validation picture where there is one.

    Call it after the run has ended and before the trial's state is set: a finished trial accepts
    no artifacts. A second call replaces the note and the picture of the first.

    Args:
        study: the trial's study.
        trial: a running trial; its attribute `reason` says why it failed or was pruned.
        run: the trial's run directory, in any state.
        details: how it ended and what was measured, in Markdown; empty where it failed.
        artifacts: the folder of the study's `FileSystemArtifactStore`.
    """
    from optuna_dashboard import save_note  # much is loaded with it, and drivers write no notes

    identity = study.user_attrs.get("identity", {})
    save_note(trial, hide_secrets(note(run, trial.user_attrs, identity.get("commit"), details)))
    if run.validation_picture.exists():
        attach(trial, run.validation_picture, artifacts)


def note(run: RunDir, attributes: Mapping[str, Any], commit: str | None, details: str) -> str:
    """A trial's note in Markdown: how its run ended, its metrics, why, its run and commit."""
    status = run.status()
    reason = attributes.get("reason") or status.reason
    parts = [
        details or (f"**{status.state}**" if run.status_file.exists() else "**not started**"),
        textwrap.indent(reason, "    "),  # verbatim, without markup
        continued(len(attributes.get("lost_claims", ()))),
        f"run `{run.path}`, commit `{commit or 'unknown'}`",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def continued(deaths: int) -> str:
    """How often another worker continued the trial."""
    return f"continued by another worker after {deaths} of its workers died" if deaths else ""


def attach(trial: optuna.Trial, picture: Path, artifacts: Path) -> None:
    """Make a picture the trial's only artifact of its name, even if an earlier call was killed."""
    from optuna.artifacts import FileSystemArtifactStore, get_all_artifact_meta, upload_artifact

    artifacts.mkdir(parents=True, exist_ok=True)
    known = [
        meta.artifact_id for meta in get_all_artifact_meta(trial) if meta.filename == picture.name
    ]
    if not known:
        store = FileSystemArtifactStore(artifacts)
        upload_artifact(artifact_store=store, file_path=str(picture), study_or_trial=trial)
        return
    with replacing(artifacts / known[0]) as temporary:  # killed between naming and writing it
        shutil.copyfile(picture, temporary)
