"""One run as its directory describes it: settings, learning curve, results, origin, engine.

Reading is fast because it is lazy: of `metrics.jsonl` only the validation rows are parsed.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

from zoerefine.base.config_roles import SEED, Role, compared_settings, group_settings, role_of
from zoerefine.base.errors import UserError
from zoerefine.base.registries import OWN_TRAINING
from zoerefine.base.run_dir import RunDir, require_file
from zoerefine.base.yaml.equal_values import exact_text_at
from zoerefine.base.yaml.keys import flatten
from zoerefine.base.yaml.read import load_yaml
from zoerefine.lab.runs.group_key import COMMIT, PLACES, group_key, origin_settings


def read_tree(path: Path) -> dict[str, Any]:
    """The config of a run, with values as JSON can hold them.

    The file is read as it is, not merged into today's defaults: it may be an older version's.
    """
    try:
        require_file(path)
        tree = load_yaml(path.read_text(encoding="utf-8"), has_switches=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    if tree is None:  # an empty config
        return {}
    if not isinstance(tree, dict):
        raise UserError(f"{path} is damaged: it holds no mapping of keys")
    return json.loads(json.dumps(tree))


def read_own_config(run: RunDir) -> dict[str, Any]:
    """The config of one of our trainings, which has every key.

    Raises `UserError` as `read_tree`, and for a file that was cut, or emptied: its other keys would
    be taken for defaults.
    """
    tree = read_tree(run.config_file)
    if LAST_KEY not in tree:
        raise UserError(
            f"{run.config_file} is damaged: it ends before {LAST_KEY}, the last key that a "
            "training writes; copy the run again, or move it away"
        )
    return tree


LAST_KEY = "SEARCH"  # of a config as a training saves it
SCHEMA = 1  # of results.json
RESULT_FACTS = ("data", "data_digest", "pseudo_label", "pruned", "parameters", "images_per_s",
                "wait_share")  # fmt: skip
TRAIN_ROW = b'{"phase": "train"'
MOST_EPOCHS = 10**9
LARGEST = 1e100  # a number beyond it is no measurement, and no graph can show it
LONGEST_ROW = 2**20  # bytes of a row of metrics.jsonl
PRUNED = "pruned at step"  # how the reason of a trial begins that a search stopped


@dataclass(frozen=True)
class Curve:
    """Validation AbsRel over epochs (counted from 1), refined and of the pseudo depth itself.

    Or another metric: `epochs` are its steps, `refined` its values, and `pseudo` is NaN.
    """

    epochs: list[float]
    refined: list[float]
    pseudo: float


@dataclass(frozen=True)
class Run:
    """One run, as far as it got. Documents are empty where the run has none yet.

    Attributes:
        settings: of its config, and `origin_settings`.
        group: digest of all that decides the result but the seed.
        seed: None where it is not known. That of another repository's script may be a text.
        started: in seconds since the epoch; 0: not known.
        is_foreign: another repository's script wrote it.
        finals: final values of metrics by name.
        curves: of the metrics that are compared.
        faults: what of its metrics could not be read.
    """

    path: str
    state: str
    settings: dict[str, Any]
    group: str
    seed: int | float | str | None
    provenance: dict[str, Any]
    curve: Curve | None = None
    results: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    started: float = 0.0
    is_foreign: bool = False
    finals: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its folder's name, or the one in a tracker; `trial 3` for the trial of a study."""
        if given := self.provenance.get("run_name"):
            return str(given)
        path = Path(self.path)
        if path.parent.name == "trials":
            return f"trial {int(path.name)}" if path.name.isdecimal() else path.name
        return path.name

    @property
    def shared_name(self) -> str:
        """The name that runs may share: as --name gives it, or a tracker has it; else empty."""
        if self.is_tracked:
            return str(self.provenance.get("run_name") or "")
        folder = Path(self.path).parent.name
        return folder if "module" in self.provenance and folder != "trials" else ""

    @property
    def is_in_folder(self) -> bool:
        """Whether a tracker gave it no name, as TensorBoard does: only its folder has one."""
        return self.is_tracked and not self.shared_name

    @property
    def is_tracked(self) -> bool:
        """Whether a tracker recorded it, not a launch."""
        return "tracker_id" in self.provenance

    @property
    def is_unknown(self) -> bool:
        """Whether a tracker recorded neither its seed nor any setting of its script."""
        return self.is_tracked and self.seed is None and not {*self.settings} - {COMMIT, *PLACES}

    @property
    def named_settings(self) -> dict[str, Any]:
        """The settings, with the seed by its key in the config."""
        key = str(self.provenance.get("seed_key", SEED)).lstrip("+")
        return self.settings | ({} if self.seed is None else {key: self.seed})

    @property
    def pruned(self) -> bool:
        """Whether a search stopped it early."""
        return bool(self.results.get("pruned") or self.provenance.get("pruned"))

    @property
    def is_whole(self) -> bool:
        """Whether it ran to its own end."""
        return self.state == "finished" and not self.pruned

    @property
    def commit(self) -> str:
        return str(self.provenance.get("commit") or "unknown")

    def metric(self, split: str, which: str, name: str) -> float | None:
        """A final metric, e.g. ("val", "refined", "abs_rel"); None where it is not finite."""
        return finite_number(self.results.get(split, {}).get(which, {}).get(name))

    def final(self, name: str) -> float | None:
        """The final value of any metric; None where the run has none, or it is not finite."""
        return finite_number(self.finals.get(name))

    def scenes(self, split: str, which: str, name: str) -> dict[str, float]:
        """A final metric by scene."""
        scenes = self.results.get(split, {}).get("scenes", {})
        values = {scene: finite_number(found[which].get(name)) for scene, found in scenes.items()}
        return {scene: value for scene, value in values.items() if value is not None}

    def result(self, name: str) -> float | None:
        """A single finite number of `results.json`, e.g. `parameters`."""
        value = self.results.get(name)
        return None if finite_number(value) is None else value

    @property
    def latency_ms(self) -> float | None:
        """The engine's time for a frame; None without an engine."""
        return finite_number(self.engine.get("latency_ms"))


@dataclass(frozen=True)
class Collection:
    """Runs, and the paths that were left out with the reason."""

    runs: list[Run]
    left_out: dict[str, str] = field(default_factory=dict)


def finite_number(value: Any) -> float | None:
    """`value` as a float; None if it is not a number, not finite, or beyond `LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LARGEST else None


def read_own_run(run: RunDir, recorded: dict[str, Any]) -> Run:
    """Read the run of one of our trainings; `recorded` is its provenance.json.

    Raises `UserError` or `OSError` where a document is damaged.
    """
    tree, results = read_own_config(run), read_results(run)
    origin, seed = origin_settings(recorded), tree.get(SEED, 0)
    status = run.status()
    return Run(
        path=str(run.path),
        state=status.state,
        started=status.started,
        settings=compared_settings(tree) | origin,
        group=group_key([group_settings(tree), origin]),
        seed=seed if isinstance(seed, int) else 0,
        curve=read_curve(run),
        results=results,
        provenance=recorded,
        engine=read_engine(run),
        faults=[f"results.json: {name} is beyond {LARGEST:g}" for name in beyond(results)],
    )


def beyond(results: Mapping[str, Any]) -> list[str]:
    """The names of numbers that are too large to be a measurement."""
    numbers = {k: v for k, v in flatten(results).items() if isinstance(v, int | float)}
    return [name for name, v in numbers.items() if abs(v) > LARGEST and v not in (inf, -inf)]


def read_results(run: RunDir) -> dict[str, Any]:
    """What the analysis needs of `results.json`: `val` and `test`, each with its scenes, and facts.

    Raises `UserError` where something is not a mapping that should be one.
    """
    path = run.results_file
    document = run.document(path)
    if document.get("schema", SCHEMA) != SCHEMA:
        raise UserError(f"{path} has schema {document['schema']}, this version reads {SCHEMA}")
    if not document:
        return {}
    results = {name: document[name] for name in RESULT_FACTS if name in document}
    val, test = (_mapping(document, split, path) for split in ("val", "test"))
    scenes = {"val": _mapping(val, "scenes", path), "test": _mapping(document, "test_scenes", path)}
    for split, metrics in (("val", val), ("test", test)):
        by_scene = {s: _depths(_mapping(scenes[split], s, path), path) for s in scenes[split]}
        results[split] = _depths(metrics, path) | {"scenes": by_scene}
    return results


def _depths(metrics: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The metrics of the refined and of the pseudo depth."""
    return {which: _mapping(metrics, which, path) for which in ("refined", "pseudo")}


def _mapping(parent: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    """The mapping under `key`; empty where there is none."""
    value = parent.get(key)
    if value is not None and not isinstance(value, dict):
        raise UserError(f"{path} is damaged: {key} is a {type(value).__name__}, not a mapping")
    return value or {}


def read_curve(run: RunDir) -> Curve | None:
    """The validation rows of `metrics.jsonl`; a last line without its end is left out."""
    if not os.path.lexists(run.metrics_file):
        return None
    if not run.metrics_file.is_file():
        raise UserError(f"{run.metrics_file} is not a regular file")
    epochs: list[float] = []
    refined, pseudo = [], math.nan
    with open(run.metrics_file, "rb") as file:
        for number, line in evaluation_lines(file):
            try:
                row = json.loads(line.decode("utf-8"))
                if row["phase"] != "val":
                    continue
                epoch = row["epoch"]
                value, pseudo = (float(row[w]["abs_rel"]) for w in ("refined", "pseudo"))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                raise UserError(f"{run.metrics_file} is damaged in line {number}") from None
            if not isinstance(epoch, int) or not 0 <= epoch < MOST_EPOCHS:
                raise UserError(
                    f"{run.metrics_file} line {number}: epoch {repr(epoch)[:20]} is not a count"
                )
            if finite_number(value) is not None:
                epochs.append(epoch + 1)
                refined.append(value)
    return Curve(epochs, refined, pseudo) if epochs else None


def evaluation_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The complete lines that are no training rows, with their numbers, from 1.

    Almost all rows are of training: blocks of lines are split at once, which is fast. Of a line
    longer than LONGEST_ROW, only the beginning is kept.
    """
    number, rest = 1, b""
    while block := file.read(LONGEST_ROW):
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[:LONGEST_ROW]
        for place, line in enumerate(lines, number):
            if not line.startswith(TRAIN_ROW):
                yield place, line
        number += len(lines)


def read_engine(run: RunDir) -> dict[str, Any]:
    """The manifest of the run's engine bundle; empty where it has none."""
    if not os.path.lexists(run.bundle):
        return {}
    if not run.bundle.is_file():
        raise UserError(f"{run.bundle} is not a regular file")
    found: dict[str, Any] = OWN_TRAINING.load("bundle_manifest")(run.bundle)
    return found


def differing_keys(runs: list[Run]) -> list[str]:
    """The settings that decide results and are not the same in all runs.

    Every setting of another repository's script may decide its result, and it may tell null from
    no such key.
    """
    keys = dict.fromkeys(
        key for run in runs for key in run.settings if run.is_foreign or role_of(key) is Role.RESULT
    )
    return [key for key in keys if len({_text_of(run, key) for run in runs}) > 1]


def _text_of(run: Run, key: str) -> str:
    return exact_text_at(run.settings, key) or ("" if run.is_foreign else "null")
