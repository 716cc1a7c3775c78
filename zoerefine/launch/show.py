"""A run for people: what ran, on what, how it ended, and the command that runs it again."""

import shlex
import time
from pathlib import Path
from typing import Any

from zoerefine.launch.result_files import numbers, weights
from zoerefine.run_dir import RunDir

SHOWN = 12


def show_run(run: RunDir) -> str:
    """A page of text about a run.

    Raises:
        UserError: the folder is no run.
    """
    known = run.read_json(run.provenance_file)
    status = run.status()
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.started))
    took = f", {(status.ended or time.time()) - status.started:.0f} s" if status.started else ""
    rows = {
        "run": run.path,
        "state": f"{status.state}: {status.reason}" if status.reason else status.state,
        "started": f"{began}{took}" if status.started else "",
        "repository": known.get("repository"),
        "commit": commit_line(known),
        "job": job_line(known),
        "config": f"{known.get('config', '')}, kept as {known.get('input', 'config.yaml')}",
        "overrides": shlex.join(known.get("overrides", [])),
        "seed": known.get("seed", known.get("hash_seed")),
        "python": f"{known.get('python')}, packages {str(known.get('environment_digest'))[:12]}",
        "torch": joined(known, "torch", "cuda", "driver"),
        "machine": joined(known, "host", "cpu", "gpu"),
        "data": str(known.get("dataset_digest", ""))[:12],
        "weights": ", ".join(f"{digest[:12]}" for digest in weights(run).values()),
    }
    lines = [f"{name:<11} {value}" for name, value in rows.items() if value]
    found = list(numbers(run).items())
    lines += ["", *(f"  {name:<40} {value:.6g}" for name, value in found[:SHOWN])] if found else []
    if len(found) > SHOWN:
        lines.append(f"  ... and {len(found) - SHOWN} more in results.json")
    again = command(run, known)
    return "\n".join([*lines, *(["", "again:", f"  {again}"] if again else [])])


def commit_line(known: dict[str, Any]) -> str:
    """The commit, what it was asked for by, and what was changed on top of it."""
    files = known.get("dirty_files") or []
    ref = known.get("ref", "")
    asked = f" ({ref})" if ref and ref != known.get("commit") else ""
    changed = f", with {len(files)} uncommitted files: {', '.join(files[:4])}" if files else ""
    return f"{known.get('commit') or 'none'}{asked}{changed}"


def job_line(known: dict[str, Any]) -> str:
    """The module with its fixed arguments."""
    return shlex.join([known["module"], *known.get("arguments", [])]) if "module" in known else ""


def joined(known: dict[str, Any], *names: str) -> str:
    """Some facts in a line."""
    found = [known.get(name) for name in names]
    flat = [", ".join(one) if isinstance(one, list) else str(one) for one in found if one]
    return ", ".join(flat)


def command(run: RunDir, known: dict[str, Any]) -> str:
    """The command that launches the same job; empty where no launcher started it."""
    if "module" not in known:
        return ""
    if known.get("dirty_digest"):  # only the run itself holds the changes
        return shlex.join(["zoerefine", "reproduce", str(run.path)])
    config = run.path / known.get("input", "input.yaml")
    words = ["zoerefine", "run", "--repo", known["repository"], "--commit", known["commit"]]
    words += ["--config", str(config), "--module", known["module"]]
    if known.get("config_flag", "--config") != "--config":
        words.append(f"--config-flag={known['config_flag']}")
    if known.get("environment_kind") == "venv":
        words += ["--environment", "venv"]
    words += ["--caller", known.get("caller", "."), *known.get("overrides", [])]
    if known.get("arguments"):
        words += ["--", *known["arguments"]]
    return shlex.join(words)


def open_run(path: Path) -> RunDir:
    """The run at a path, `latest` and the like followed."""
    return RunDir(path.resolve())
