"""What the dashboard shows for a trial: a note with its outcome, and its validation picture."""

import math
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.artifacts import FileSystemArtifactStore, get_all_artifact_meta, upload_artifact
from optuna_dashboard import save_note

from zoerefine.files import replacing
from zoerefine.launch.redaction import hide_secrets
from zoerefine.metrics import arrow
from zoerefine.run_dir import RunDir


def describe(study: optuna.Study, trial: optuna.Trial, run: RunDir, artifacts: Path) -> None:
    """Write a trial's note, and attach its run's validation picture where there is one.

    Call it after the run has ended and before the trial's state is set: a finished trial accepts
    no artifacts. A second call replaces the note and the picture of the first.

    Args:
        study: the trial's study.
        trial: a running trial; its attribute `reason` says why it failed or was pruned.
        run: the trial's run directory, in any state.
        artifacts: the folder of the study's `FileSystemArtifactStore`.
    """
    identity = study.user_attrs.get("identity", {})
    save_note(trial, hide_secrets(note(run, trial.user_attrs, identity.get("commit"))))
    if run.validation_picture.exists():
        attach(trial, run.validation_picture, artifacts)


def note(run: RunDir, attributes: Mapping[str, Any], commit: str | None) -> str:
    """A trial's note in Markdown: how its run ended and why, its run, commit and metrics."""
    results = run.read_json(run.results_file) if run.results_file.exists() else {}
    status = run.status()
    epoch = f" after epoch {results['epochs']}" if results else ""
    ended = f"**{'pruned' if results.get('pruned') else status.state}**{epoch}"
    reason = attributes.get("reason") or status.reason
    parts = [
        ended if run.status_file.exists() else "**not trained**",
        textwrap.indent(reason, "    "),  # verbatim, without markup
        continued(len(attributes.get("lost_claims", ()))),
        f"run `{run.path}`, commit `{commit or 'unknown'}`",
        metrics_table(results["val"]) if "val" in results else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def continued(deaths: int) -> str:
    """How often another worker continued the trial."""
    return f"continued by another worker after {deaths} of its workers died" if deaths else ""


def metrics_table(validation: dict[str, Any]) -> str:
    """The refined depth's metrics beside the pseudo depth's, as a Markdown table."""
    rows = ["| validation | pseudo depth | refined | ratio |", "|---|---:|---:|---:|"]
    for name, refined in validation["refined"].items():
        pseudo, ratio = validation["pseudo"][name], validation["ratio"].get(name, math.nan)
        rows.append(f"| {name} {arrow(name)} | {pseudo:.4f} | {refined:.4f} | {ratio:.3f} |")
    return "\n".join(rows)


def attach(trial: optuna.Trial, picture: Path, artifacts: Path) -> None:
    """Make a picture the trial's only artifact of its name, even if an earlier call was killed."""
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
