"""A bundle for people: its manifest, whether it runs on this machine, how to build it again."""

from pathlib import Path
from typing import Any

from zoerefine.base.messages import visible
from zoerefine.depth.data.networks.pseudo_source import source_from_json
from zoerefine.depth.exporting.bundle.bundle import MODEL_CARD, read_bundle, rebuild_command
from zoerefine.depth.exporting.bundle.manifest import ORIGIN, require_fields
from zoerefine.depth.exporting.bundle.trust import is_trusted
from zoerefine.depth.exporting.engine_kinds import (
    Bundle,
    EngineKind,
    engine_kind,
    requirement_words,
    unmet_requirements,
)
from zoerefine.depth.exporting.model_card import latencies


def show_bundle(path: Path) -> str:
    """A page of text. Loads none of the bundle's code.

    Raises as `read_bundle` does, and for an absent field.
    """
    bundle = read_bundle(path)
    manifest = bundle.manifest
    require_fields(manifest, ORIGIN, path)
    kind = engine_kind(manifest["engine"], path)
    unmet = unmet_requirements(manifest["requirements"], kind.machine_facts())
    rows = {
        "bundle": f"{path}, {len(bundle.data) / 1e6:.1f} MB",
        "model card": model_card_of(bundle),
        "digest": manifest["digest"],
        "contains": contents(kind, manifest["digest"]),
        "engine": f"{manifest['engine']} {manifest['precision']}, for {manifest['device']}",
        "batch sizes": ", ".join(map(str, manifest["batches"])) or "any",
        "requires": requirement_words(manifest),
        "runs here": f"no: {', '.join(unmet)}" if unmet else "yes",
        "accuracy": f"differs from the float32 refiner by at most "
        f"{manifest['max_abs_err_m']:.4f} m, {manifest['mean_rel_err']:.4%} in a frame's mean, on "
        f"{manifest['frames']} frames; compared: {manifest['compared']}",
        "latency": latency(manifest),
        "chosen by": choice(manifest),
        "run": manifest["run"],
        "commit": manifest["commit"]
        + (" with uncommitted changes" if manifest["dirty_digest"] else ""),
        "weights": manifest["weights"],
        "config": manifest["config_digest"],
        "data": f"{manifest['data']}; {manifest['pseudo_label']}",
        "pseudo": str(source_from_json(manifest["pseudo"])),
        "built with": f"zoerefine {manifest['zoerefine']}, torch {manifest['torch']}",
        "built on": manifest["gpu"] or manifest["processor"],
        "inputs": ", ".join(f"{name} {what}" for name, what in manifest["inputs"].items()),
        **{
            f"output {number}": f"{name} {one['type']}, {one['meaning']}"
            for number, (name, one) in enumerate(manifest["outputs"].items(), 1)
        },
    }
    lines = [f"{name:<11} {value}" for name, value in rows.items() if value]
    pseudo = manifest.get("pseudo_metrics", {})
    metrics = [
        f"  {name:<40} {value:.6g}"
        + (f" (pseudo depth {pseudo[name]:.6g})" if name in pseudo else "")
        for name, value in manifest["metrics"].items()
    ]
    if metrics:
        lines += ["", "metrics on held-out scenes:", *metrics]
    lines += [f"warning: {line}" for line in manifest.get("warnings", [])]
    lines += ["", "build it again:", f"  {rebuild_command(manifest, path)}"]
    return "\n".join(map(visible, lines))


def bundle_facts(path: Path) -> dict[str, Any]:
    """A bundle for programs: its manifest, its size, and what it lacks on this machine.

    Raises as `read_bundle` does. Loads none of the bundle's code.
    """
    bundle = read_bundle(path)
    kind = engine_kind(bundle.manifest["engine"], path)
    unmet = unmet_requirements(bundle.manifest["requirements"], kind.machine_facts())
    return {
        "path": str(path),
        "bytes": len(bundle.data),
        "runs_here": not unmet,
        "unmet": unmet,
        "manifest": bundle.manifest,
    }


def model_card_of(bundle: Bundle) -> str:
    """Where the model card is: beside the bundle, or inside it."""
    beside, inside = bundle.path.with_name(MODEL_CARD), bundle.find_file(MODEL_CARD)
    if inside is None:
        return ""
    if beside.exists() and beside.read_bytes() == inside:
        return str(beside)
    return bundle.container.print_command(bundle.path, MODEL_CARD)


def contents(kind: EngineKind, digest: str) -> str:
    """Whether loading the bundle runs code from it."""
    if not kind.CONTAINER.is_code:
        return "only data: loading it runs no code from it"
    answer = "you trust it" if is_trusted(digest) else "unknown to you, see --trust"
    return f"a program, which loading runs with your rights; {answer}"


def latency(manifest: dict[str, Any]) -> str:
    """Of a frame, beside the eager refiner's."""
    if "latency_ms" not in manifest:
        return "not measured: the machine that built it cannot run it"
    return (
        f"{manifest['latency_ms']:.2f} ms a frame of {manifest['width']}x{manifest['height']}; the "
        f"float32 refiner in PyTorch {manifest['eager_ms']:.2f} ms, on the same machine"
    )


def choice(manifest: dict[str, Any]) -> str:
    """What was measured to choose this engine."""
    measured = manifest.get("choice")
    return f"{latencies(measured)}, on {measured['processor']}" if measured else ""
