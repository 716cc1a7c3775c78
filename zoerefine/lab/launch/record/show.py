"""A page about a run: what ran, on what, how it ended, and the commands that run it again."""

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.messages import counted, first_few, visible
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.job import JOB_OPTIONS, NO_CONFIG, launch_words, recorded_job
from zoerefine.lab.launch.record.comparison import left_digests, weight_digests
from zoerefine.lab.launch.record.provenance import seed_of
from zoerefine.lab.runs.metrics import read_metrics

# What a launcher records of every job, and what a second launch needs.
LAUNCH_FACTS = {"repository", "commit", "config", "input", "input_digest", "module"}
# What is recorded as a text, as a list of texts, and as a number.
KEYS = {one.metadata["key"]: type(one.default) for one in JOB_OPTIONS}
TEXTS = {*LAUNCH_FACTS, "ref", "caller", *(key for key, kind in KEYS.items() if kind is str)}
LISTS = {"overrides", "arguments", "dirty_files"}
LISTS |= {key for key, kind in KEYS.items() if kind is tuple}
NUMBERS = {key for key, kind in KEYS.items() if kind is int}
# What --json shows as it was recorded.
RECORDED_FACTS = (
    "repository", "commit", "ref", "dirty_files", "module", "arguments", "config", "overrides",
    "python", "environment_digest", "torch", "cuda", "driver", "host", "cpu", "gpu",
    "dataset_digest", "variables",
)  # fmt: skip
MAX_NUMBERS, MAX_FILES = 12, 4
REFINED = re.compile(r"(test|val)\.refined\.\w+")  # of our own trainings


def show_run(run: RunDir, patterns: Sequence[str] = ()) -> str:
    """A page of text about a run. Raises `UserError` where the folder is not a run.

    Args:
        patterns: further metric patterns.
    """
    recorded = run.read_json(run.provenance_file)
    check_types(run, recorded)
    recorded = {name: value for name, value in recorded.items() if value is not None}
    status = run.status()
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.started))
    seconds = (status.ended or time.time()) - status.started
    took = f", {seconds:.0f} s" if seconds >= 0 else ""  # not of a clock that was set back
    rows = {
        "run": run.path,
        "state": f"{status.state}: {status.reason}" if status.reason else status.state,
        "started": f"{started}{took}" if status.started else "",
        "repository": recorded.get("repository"),
        "commit": commit_line(recorded),
        "job": job_line(recorded),
        "config": config_line(run, recorded),
        "overrides": shlex.join(recorded.get("overrides", [])),
        "seed": seed_of(recorded),
        "python": recorded.get("python"),
        "packages": str(recorded.get("environment_digest", ""))[:12],
        "torch": joined(recorded, "torch", "cuda", "driver"),
        "machine": joined(recorded, "host", "cpu", "gpu"),
        "data": str(recorded.get("dataset_digest", ""))[:12],
        "weights": ", ".join(f"{digest[:12]}" for digest in weight_digests(run).values()),
        "variables": ", ".join(f"{k}={v}" for k, v in recorded.get("variables", {}).items()),
        "attempts": recorded.get("attempt", 1) if recorded.get("attempt", 1) != 1 else "",
        "left": left_line(run),
    }
    lines = [f"{name:<11} {value}" for name, value in rows.items() if value]
    lines += metric_lines(run, patterns)
    if is_launched(recorded):
        again = shlex.join(["zoerefine", "reproduce", str(run.path)])
        lines += ["", "launched with:", f"  {launch_command(run, recorded)}"]
        lines += ["run it again and compare:", f"  {again}"]
    return "\n".join(map(visible, lines))


def run_facts(run: RunDir, patterns: Sequence[str] = ()) -> dict[str, Any]:
    """The facts of a run for programs; None where one is unknown. Raises as `show_run` does."""
    recorded = run.read_json(run.provenance_file)
    check_types(run, recorded)
    status, metrics = run.status(), read_metrics(run, patterns)
    return {
        "path": str(run.path),
        "state": status.state,
        "reason": status.reason,
        "started": status.started or None,
        "ended": status.ended or None,
        **{name: recorded.get(name) for name in RECORDED_FACTS},
        "seed": seed_of(recorded),
        "attempt": recorded.get("attempt", 1),
        "weights": weight_digests(run),
        "left": left_digests(run),
        "metrics": metrics.final,
        "metrics_from": metrics.source,
        "notes": metrics.faults,
        "bundle": str(run.bundle) if run.bundle.exists() else None,
        "launched_with": launch_command(run, recorded) if is_launched(recorded) else None,
    }


def is_launched(recorded: dict[str, Any]) -> bool:
    """Whether a launcher started the run, and recorded what a second launch needs."""
    return {name for name, value in recorded.items() if value is not None} >= LAUNCH_FACTS


def check_types(run: RunDir, recorded: Any) -> None:
    """Raises `UserError` where a value of provenance.json is of another type than a launcher's."""
    where = f"{run.provenance_file} is damaged"
    if not isinstance(recorded, dict):
        raise UserError(f"{where}: it holds no JSON object")
    for name in TEXTS & recorded.keys():
        if not isinstance(recorded[name], str | None):
            raise UserError(f"{where}: {name} is not a text")
    for name in LISTS & recorded.keys():
        values = recorded[name]
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise UserError(f"{where}: {name} is not a list of texts")
    for name in NUMBERS & recorded.keys():
        if not isinstance(recorded[name], int | None):
            raise UserError(f"{where}: {name} is not a whole number")


def metric_lines(run: RunDir, patterns: Sequence[str]) -> list[str]:
    """The final metrics, those of the refined depth first, and what could not be read of them."""
    metrics = read_metrics(run, patterns)
    refined = sorted(name for name in metrics.final if REFINED.fullmatch(name))  # test, then val
    shown = (refined or list(metrics.final))[:MAX_NUMBERS]
    lines = [f"  {name:<40} {metrics.final[name]:.6g}{beside(name, metrics.final)}"
             for name in shown]  # fmt: skip
    if len(metrics.final) > len(shown):
        lines.append(f"  ... and {len(metrics.final) - len(shown)} more in {metrics.source}")
    elif shown:
        lines.append(f"  (from {metrics.source})")
    lines += [f"  note: {fault}" for fault in metrics.faults]
    return ["", *lines] if lines else []


def beside(name: str, final: Mapping[str, float]) -> str:
    """The values beside a metric of refined depth: the pseudo depth's, refined over pseudo, and
    that of the pseudo depth times a single factor."""
    if not REFINED.fullmatch(name):
        return ""
    sides = "pseudo", "ratio", "global_scale"
    pseudo, ratio, scaled = (final.get(name.replace(".refined.", f".{one}.", 1)) for one in sides)
    if pseudo is None:
        return ""
    over = "" if ratio is None else f", ratio {ratio:.3f}"
    factor = "" if scaled is None else f"; times a single factor {scaled:.6g}"
    return f" (pseudo depth {pseudo:.6g}{over}{factor})"


def left_line(run: RunDir) -> str:
    """How many files the job left in its workspace, and the first of them."""
    names = list(left_digests(run))
    shown = first_few(names, MAX_FILES, "and ")
    return f"{counted(len(names), 'file')} in {run.left}: {shown}" if names else ""


def config_line(run: RunDir, recorded: dict[str, Any]) -> str:
    """The config's file, if it is known, and the run's copy; empty where the job takes none."""
    path, kept = str(recorded.get("config", "")), recorded.get("input", "config.yaml")
    if path == str(NO_CONFIG):
        return ""
    if path:
        return f"{path}, kept as {kept}"
    copy = run.path / kept  # of a study; empty where its script takes none
    return f"kept as {kept}" if copy.is_file() and copy.stat().st_size else ""


def commit_line(recorded: dict[str, Any]) -> str:
    """The commit, the ref that it was launched by, and the uncommitted files."""
    files = recorded.get("dirty_files") or []
    ref = recorded.get("ref", "")
    asked = f" ({ref})" if ref and ref != recorded.get("commit") else ""
    changed = f", with {len(files)} uncommitted files: {', '.join(files[:4])}" if files else ""
    return f"{recorded.get('commit') or 'none'}{asked}{changed}"


def job_line(recorded: dict[str, Any]) -> str:
    """The module with its arguments; empty where no launcher started it."""
    if "module" not in recorded:
        return ""
    return shlex.join([recorded["module"], *recorded.get("arguments", [])])


def joined(recorded: dict[str, Any], *names: str) -> str:
    """Several facts in one line."""
    values = [recorded.get(name) for name in names]
    texts = [
        ", ".join(map(str, one)) if isinstance(one, list) else str(one) for one in values if one
    ]
    return ", ".join(texts)


def launch_command(run: RunDir, recorded: dict[str, Any]) -> str:
    """The command that launched the run, with its exact commit.

    The config is the user's own file while it is unchanged, otherwise the run's copy.
    """
    job = recorded_job(run, recorded)
    config = config_file(run, recorded) if job.config != NO_CONFIG else job.config
    dirty, name = bool(recorded.get("dirty_digest")), run.path.parent.name
    job = replace(job, config=config, allow_dirty=dirty, name=name)
    others = ("--caller", str(job.caller), "--runs", str(run.path.parents[1]))
    return shlex.join(["zoerefine", "run", *launch_words(job, *others)])


def config_file(run: RunDir, recorded: dict[str, Any]) -> Path:
    """The config that the run was launched with."""
    path = Path(recorded["config"])
    same = path.is_file() and sha256(path.read_bytes()).hexdigest() == recorded["input_digest"]
    return path if same else run.path / recorded["input"]
