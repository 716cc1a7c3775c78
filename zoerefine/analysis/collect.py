"""Collect runs from their directories: what each was, how it went, what it reached.

Reading is fast because it is lazy: of the log only validation rows are parsed, and what was read
of a run is kept in `collected.json` beside the report until one of the run's files changes.
"""

import glob
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from zoerefine.errors import UserError
from zoerefine.files import digest_json, write_json
from zoerefine.progress import track
from zoerefine.run_dir import RunDir

SCHEMA = 1
# Where a run went, how long and from where: not what makes one run differ from another.
NOT_SETTINGS = {"RUN", "SEED", "STUDY", "SEARCH"}
NOT_SETTING_KEYS = {"DATA.ROOT", "CACHE.ROOT", "CACHE.WORKERS"}
TRAIN_ROW = '{"phase": "train"'

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Curve:
    """Validation AbsRel over epochs, of the refiner and of the pseudo depth itself."""

    epochs: list[int]
    refined: list[float]
    pseudo: float


@dataclass(frozen=True)
class Run:
    """One run, as far as it got. Documents are empty where the run has none yet."""

    path: str
    state: str
    settings: dict[str, Any]
    group: str  # digest of the settings, so without the seed
    seed: int
    curve: Curve | None
    results: dict[str, Any]
    provenance: dict[str, Any]
    engine: dict[str, Any]

    @property
    def name(self) -> str:
        """What people call it: its folder, and for a trial or a best run the study's too."""
        path = Path(self.path)
        if path.parent.name == "trials":
            return f"trial {int(path.name)}" if path.name.isdecimal() else path.name
        return path.name

    @property
    def pruned(self) -> bool:
        return bool(self.results.get("pruned"))

    @property
    def commit(self) -> str:
        return str(self.provenance.get("commit") or "unknown")

    def metric(self, split: str, which: str, name: str) -> float | None:
        """A final metric, e.g. ("val", "refined", "abs_rel"); None where there is no number."""
        values = self.results.get(split) or {}
        value = (values.get(which) or {}).get(name)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def scenes(self, split: str, which: str, name: str) -> dict[str, float]:
        """A final metric by scene."""
        if split == "test":
            scenes = self.results.get("test_scenes") or {}
        else:
            scenes = (self.results.get(split) or {}).get("scenes") or {}
        values = {scene: (v.get(which) or {}).get(name) for scene, v in scenes.items()}
        return {s: float(v) for s, v in values.items() if isinstance(v, int | float)}


@dataclass(frozen=True)
class Collection:
    """Runs, and what was left out with the reason."""

    runs: list[Run]
    left_out: dict[str, str] = field(default_factory=dict)


def collect(
    patterns: list[str],
    where: Callable[[Mapping[str, Any]], bool] | None = None,
    memory: Path | None = None,
) -> Collection:
    """Read runs, the trials and best runs of studies, and whatever globs match.

    Args:
        patterns: run directories, studies, or globs of them.
        where: keeps the runs whose settings fit (see `where.parse_where`).
        memory: a file that remembers what was read of runs that have not changed since.

    Raises:
        UserError: nothing matches, or no run can be read.
    """
    folders = list(dict.fromkeys(f for pattern in patterns for f in find_runs(pattern)))
    remembered = _recall(memory)
    runs, left_out, kept = [], {}, {}
    for folder in track(folders, len(folders), "collecting", "run"):
        try:
            stamp = stamp_of(folder)
            known = remembered.get(str(folder))
            data = known["run"] if known and known["stamp"] == stamp else asdict(read_run(folder))
            kept[str(folder)] = {"stamp": stamp, "run": data}
            curve = Curve(**data["curve"]) if data["curve"] else None
            run = Run(**(data | {"curve": curve, "state": RunDir(folder).status().state}))
        except UserError as error:
            left_out[str(folder)] = str(error)
            continue
        if where is None or where(run.settings | about(run)):
            runs.append(run)
        else:
            left_out[str(folder)] = "does not fit --where"
    if memory is not None:
        write_json(memory, {"schema": SCHEMA, "runs": kept})
    if not runs:
        reasons = "; ".join(list(left_out.values())[:3]) or "no run directory matches"
        raise UserError(f"nothing to analyse in {', '.join(patterns)}: {reasons}")
    return Collection(runs, left_out)


def about(run: Run) -> dict[str, Any]:
    """What a filter can ask of a run beside its settings."""
    return {"state": run.state, "seed": run.seed, "commit": run.commit}


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
            below = sorted({file.parent.resolve() for file in path.glob("*/config.yaml")})
            found += [run for folder in below for run in find_runs(str(folder))]
    return found


def stamp_of(folder: Path) -> list[list[Any]]:
    """Size and time of the files that a run is read from; changes when one of them does."""
    run = RunDir(folder)
    files = (run.config_file, run.results_file, run.metrics_file, run.provenance_file,
             run.bundle)  # fmt: skip
    return [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files if f.exists()]


def read_run(folder: Path) -> Run:
    """One run directory. Raises `UserError` where its documents are damaged."""
    run = RunDir(folder)
    settings = read_settings(run.config_file)
    seed = settings.pop("SEED", 0)
    return Run(
        path=str(folder),
        state="",
        settings=settings,
        group=digest_json(settings)[:8],
        seed=seed if isinstance(seed, int) else 0,
        curve=read_curve(run),
        results=_document(run, run.results_file),
        provenance=_document(run, run.provenance_file),
        engine=read_engine(run),
    )


def _document(run: RunDir, path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    value = run.read_json(path)
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: it holds no JSON object")
    if value.get("schema", SCHEMA) != SCHEMA:
        raise UserError(f"{path} has schema {value['schema']}, this version reads {SCHEMA}")
    return value


def read_settings(path: Path) -> dict[str, Any]:
    """`TRAIN.LR: value` for every setting that can make one run differ from another, and SEED.

    The file is read as it is, not merged into today's defaults: it may be an older version's.
    """
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader)  # a safe loader
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise UserError(f"{path} is damaged: it is no mapping of keys")
    return {"SEED": tree.get("SEED", 0), **flat_settings(tree)}


def flat_settings(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree of settings as one level, keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if name in NOT_SETTINGS or name in NOT_SETTING_KEYS:
            continue
        if isinstance(value, Mapping) and value:
            flat |= flat_settings(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def read_curve(run: RunDir) -> Curve | None:
    """The validation rows of metrics.jsonl; training rows are not even parsed."""
    if not run.metrics_file.exists():
        return None
    epochs, refined, pseudo = [], [], math.nan
    with open(run.metrics_file, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.startswith(TRAIN_ROW) or not line.endswith("\n"):
                continue
            try:
                row = json.loads(line)
                if row["phase"] != "val":
                    continue
                value = float(row["refined"]["abs_rel"])
                pseudo = float(row["pseudo"]["abs_rel"])
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{run.metrics_file} is damaged in line {number}") from None
            if math.isfinite(value):
                epochs.append(int(row["epoch"]) + 1)
                refined.append(value)
    return Curve(epochs, refined, pseudo) if epochs else None


def read_engine(run: RunDir) -> dict[str, Any]:
    """The manifest of the run's engine bundle; empty where it has none."""
    if not run.bundle.exists():
        return {}
    from zoerefine.export.bundle import read_manifest

    return read_manifest(run.bundle)


def _recall(memory: Path | None) -> dict[str, Any]:
    """What was read before; nothing where the file is missing, damaged or of another version."""
    if memory is None or not memory.exists():
        return {}
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return known["runs"] if known.get("schema") == SCHEMA else {}


def differing(runs: list[Run]) -> list[str]:
    """The settings that are not the same in all runs."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    return [key for key in keys if len({str(run.settings.get(key)) for run in runs}) > 1]
