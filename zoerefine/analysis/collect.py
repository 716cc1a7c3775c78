"""Collect runs from their directories: what each was, how it went, what it reached."""

import glob
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoerefine.config import config_digest, load_config, to_dict
from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir

# Where a run went, how long and from where: not what makes one run differ from another.
NOT_SETTINGS = {"RUN", "SEED", "STUDY", "SEARCH"}
NOT_SETTING_KEYS = {"DATA.ROOT", "CACHE.ROOT", "CACHE.WORKERS"}


@dataclass(frozen=True)
class Curve:
    """Validation AbsRel over epochs, of the refiner and of the pseudo depth itself."""

    epochs: list[int]
    refined: list[float]
    pseudo: float


@dataclass(frozen=True)
class Run:
    """One run, as far as it got."""

    path: Path
    name: str
    state: str
    pruned: bool
    settings: dict[str, Any]
    group: str  # digest of the configuration without its seed
    seed: int
    curve: Curve | None
    results: dict[str, Any]
    provenance: dict[str, Any]
    engine: dict[str, Any]

    def metric(self, split: str, which: str, name: str) -> float | None:
        """A final metric, e.g. ("val", "refined", "abs_rel"), or None."""
        value = self.results.get(split, {}).get(which, {}).get(name)
        return None if value is None else float(value)


@dataclass(frozen=True)
class Collection:
    """Runs, and what was left out with the reason."""

    runs: list[Run]
    left_out: dict[str, str] = field(default_factory=dict)


def collect(patterns: list[str]) -> Collection:
    """Read runs, the trials and best runs of studies, and whatever globs match.

    Raises `UserError` where nothing matches or no run can be read.
    """
    folders = [folder for pattern in patterns for folder in find_runs(pattern)]
    runs, left_out = [], {}
    for folder in dict.fromkeys(folders):
        try:
            runs.append(read_run(folder))
        except UserError as error:
            left_out[str(folder)] = str(error)
    if not runs:
        reasons = "; ".join(left_out.values()) or "no run directory matches"
        raise UserError(f"nothing to analyse in {', '.join(patterns)}: {reasons}")
    return Collection(runs, left_out)


def find_runs(pattern: str) -> list[Path]:
    """Run directories that a path or glob stands for; a study stands for its trials and best."""
    found = []
    for match in sorted(glob.glob(pattern)) or [pattern]:
        path = Path(match).resolve()
        inner = sorted(path.glob("trials/*/config.yaml")) + sorted(path.glob("best/config.yaml"))
        if inner:
            found += [file.parent for file in inner]
        elif (path / "config.yaml").exists():
            found.append(path)
        else:
            found += sorted(file.parent for file in path.glob("*/config.yaml"))
    return found


def read_run(folder: Path) -> Run:
    """One run directory. Raises `UserError` where its documents are damaged."""
    run = RunDir(folder)
    cfg = load_config(run.config_file)
    results = run.read_json(run.results_file) if run.results_file.exists() else {}
    return Run(
        path=folder,
        name=folder.name,
        state=run.status().state,
        pruned=bool(results.get("pruned")),
        settings=flat_settings(to_dict(cfg)),
        group=config_digest(cfg, without_seed=True)[:8],
        seed=cfg.SEED,
        curve=read_curve(run),
        results=results,
        provenance=run.read_json(run.provenance_file) if run.provenance_file.exists() else {},
        engine=read_engine(run),
    )


def read_curve(run: RunDir) -> Curve | None:
    """The validation rows of metrics.jsonl."""
    rows = [row for row in run.metrics() if row["phase"] == "val"]
    if not rows:
        return None
    refined = [row["refined"]["abs_rel"] for row in rows]
    return Curve([row["epoch"] + 1 for row in rows], refined, rows[0]["pseudo"]["abs_rel"])


def read_engine(run: RunDir) -> dict[str, Any]:
    """The manifest of the run's engine bundle; empty where it has none."""
    bundle = run.engine / "refiner.ts"
    if not bundle.exists():
        return {}
    from zoerefine.export.bundle import read_manifest

    return read_manifest(bundle)


def flat_settings(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`TRAIN.LR: value` for every setting that can make one run differ from another."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if name in NOT_SETTINGS or name in NOT_SETTING_KEYS:
            continue
        if isinstance(value, dict):
            flat |= flat_settings(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def differing(runs: list[Run]) -> list[str]:
    """The settings that are not the same in all runs."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    return [key for key in keys if len({str(run.settings.get(key)) for run in runs}) > 1]
