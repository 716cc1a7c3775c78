"""What a run belongs to: its code, its data, its settings, and files that they name.

A run's folder and its checkpoints record it. Training goes on from them only where all of it is
the same, so that no result is mixed from two runs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoerefine.base.config import Config, to_dict
from zoerefine.base.config_roles import FILE_KEYS, training_settings
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file, digest_json
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data import split as splits
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.model.backbone import outside_digest
from zoerefine.depth.training.start_weights import find_start_weights

UNPACKED = ("fill", "off")  # modes of a cache whose records are not known before training


def identified(cfg: Config) -> dict[str, Any]:
    """A config's tree, with the digests of deciding files in the place of their paths."""
    tree, files = to_dict(cfg), deciding_files(cfg)
    for group, name, fact in FILE_KEYS:
        if fact in files:
            tree[group][name] = files[fact]["sha256"]
    return tree


def deciding_files(cfg: Config) -> dict[str, dict[str, Any]]:
    """Path and digest of the files that FILE_KEYS name, by their fact in provenance.json; of
    weights also the scenes that they have seen (`used_scenes`) and whose depth they refine.

    Raises `UserError` where there are no such weights, or the split is none.
    """
    found: dict[str, dict[str, Any]] = {}
    if start := find_start_weights(cfg):
        found["started_from"] = {
            "path": str(start.path.absolute()),
            "sha256": start.digest,
            "scenes": start.scenes,
            "pseudo": start.pseudo,
        }
    if path := cfg.MODEL.PRETRAINED:
        try:
            found["pretrained"] = {"path": path, "sha256": digest_file(path)}
        except OSError as error:
            raise UserError(f"MODEL.PRETRAINED {path} cannot be read: {error.strerror}") from None
    if path := cfg.DATA.SPLIT:
        digest = splits.read_split(Path(path)).file_digest
        found["split_file"] = {"path": str(Path(path).absolute()), "sha256": digest}
    return found


def require_recorded(loaded: Mapping[str, str], facts: Mapping[str, Any]) -> None:
    """Raises `UserError` where another file was read than the run has recorded: it was exchanged
    in between.

    Args:
        loaded: digests by the fact that records them, of `deciding_files`.
        facts: of the run's provenance.json.
    """
    for fact, digest in loaded.items():
        recorded = facts.get(fact, {})
        if digest != recorded.get("sha256", digest):
            raise UserError(
                f"{recorded['path']} has changed since this training recorded it: start the same "
                "command again"
            )


def outside_network(name: str) -> dict[str, Any]:
    """The digest of the files of a network outside this tree, which no commit identifies."""
    digest = outside_digest(name)
    return {"network": {"name": name, "sha256": digest}} if digest else {}


def binding(cfg: Config, cache: Cache, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a run belongs to, on one level.

    Args:
        facts: what provenance.json says about the code, and of a trial about its study.
    """
    network = outside_network(cfg.MODEL.NAME).get("network", {})
    return {
        "the study": facts.get("study_id", ""),
        "the commit": facts.get("commit") or "",
        "the digest of uncommitted changes": facts.get("dirty_digest", ""),
        "the digest of the network's files": network.get("sha256", ""),
        "the digest of the data": data_digest(cfg, cache),
        **training_settings(identified(cfg)),
    }


def data_digest(cfg: Config, cache: Cache) -> str:
    """The digest of all records, or where they are not packed yet, of their source files."""
    return cache.digest if cfg.CACHE.MODE in UNPACKED else cache.dataset_digest


def refuse_another_folder(run: RunDir, bound: Mapping[str, Any]) -> None:
    """Raises `UserError` where a folder holds a run that belongs to something else."""
    if not run.provenance_file.exists() and not run.results_file.exists():
        return
    recorded = run.read_json(run.provenance_file).get("binding")
    if recorded != digest_json(bound):
        raise UserError(
            f"{run.path} belongs to another study, or to other code, data or values: remove that "
            "folder, or give another RUN.NAME"
        )


def refuse_another_checkpoint(
    run: RunDir, state: Mapping[str, Any] | None, ours: Mapping[str, Any]
) -> None:
    """Raises `UserError`, naming the difference, where a checkpoint belongs to another run."""
    if not state:
        return
    there = state.get("binding") or {}
    for key in [*ours, *(key for key in there if key not in ours)]:
        if there.get(key) != ours.get(key):
            raise UserError(
                f"the checkpoints in {run.checkpoints} belong to another run: {key} is "
                f"{there.get(key)!r} there and {ours.get(key)!r} here; remove them, or give "
                "another RUN.NAME"
            )
