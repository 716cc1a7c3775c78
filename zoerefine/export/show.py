"""A bundle for people: its manifest, whether it fits this machine, and how to build it again."""

from pathlib import Path
from typing import Any

from zoerefine.export.bundle import again, read_manifest
from zoerefine.export.engine_kinds import kind_of, misfits


def show_bundle(path: Path) -> str:
    """A page of text. Loads none of the bundle's code; errors as `read_manifest`."""
    made = read_manifest(path)
    kind = kind_of(made["engine"])
    wrong = misfits(made["needs"], kind.here())
    rows = {
        "bundle": f"{path}, {path.stat().st_size / 1e6:.1f} MB",
        "digest": made["digest"],
        "engine": f"{made['engine']} in {made['precision']}, runs on {made['device']}",
        "batches": ", ".join(map(str, made["batches"])) or "any",
        "needs": "; ".join(f"{fact} {' or '.join(some)}" for fact, some in made["needs"].items())
        or "torch alone",
        "fits here": f"no: {', '.join(wrong)}" if wrong else "yes",
        "from eager": f"at most {made['max_abs_err_m']:.4f} m, {made['mean_rel_err']:.4%} on "
        f"average, on {made['frames']} frames ({made['compared']})",
        "latency": latency(made),
        "run": made["run"],
        "commit": made["commit"] + (" with changes" if made["dirty_digest"] else ""),
        "weights": made["weights"],
        "config": made["config_digest"],
        "data": f"{made['data']}; {made['pseudo_label']}",
        "built with": f"zoerefine {made['zoerefine']}, torch {made['torch']}"
        + (f", {made['gpu']}" if made["gpu"] else ""),
        "inputs": ", ".join(f"{name} {what}" for name, what in made["inputs"].items()),
        "output": made["output"],
    }
    lines = [f"{name:<11} {value}" for name, value in rows.items() if value]
    metrics = [f"  {name:<40} {value:.6g}" for name, value in made["metrics"].items()]
    return "\n".join([*lines, "", *metrics, "", "again:", f"  {again(made, path)}"])


def latency(made: dict[str, Any]) -> str:
    """Of a frame, against eager."""
    if "latency_ms" not in made:
        return "not timed: the machine that built it cannot run it"
    return (
        f"{made['latency_ms']:.2f} ms a frame of {made['width']}x{made['height']}, eager "
        f"{made['eager_ms']:.2f} ms on the same machine"
    )
