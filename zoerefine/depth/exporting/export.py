"""From a run to its engine bundle: chosen, built, checked, published with its model card."""

from pathlib import Path
from typing import Any

from zoerefine.base.files.atomic import write_text
from zoerefine.base.machine.device import without_strict_mode
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.exporting.build import EngineBuilder
from zoerefine.depth.exporting.bundle.bundle import MODEL_CARD, copy_bundle, read_bundle
from zoerefine.depth.exporting.engine_choice import choose
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.model_card import model_card


@without_strict_mode()
def export(run: RunDir, engine: str = "auto", precision: str = "auto") -> Path:
    """Build, check and publish a run's bundle, `engine/refiner.*`, and `engine/MODEL_CARD.md`.

    Args:
        engine: a row of `ENGINES`; auto: the fastest that this machine can build and run.
        precision: one that the engine has; auto: the fastest one on this machine that is within
            tolerance, except int8.

    Returns:
        The path of the bundle.

    Raises:
        UserError: no trained weights, no such engine on this machine, or none within tolerance.
    """
    return publish(run, *choose(EngineBuilder(run), engine, precision))


def publish(run: RunDir, built: Path, measured: dict[str, Any]) -> Path:
    """Copy a built bundle, with its model card, to where the run's engine is looked for.

    Its name has the suffix of its container; a bundle of another container stays.

    Args:
        measured: what the bundle was chosen by, for its manifest; see `engine_choice.Chosen`.
    """
    facts = {"choice": measured} if measured else {}
    bundle = read_bundle(built)
    manifest = bundle.manifest
    path = run.engine / f"refiner{engine_kind(manifest['engine']).CONTAINER.suffix}"
    card = model_card(run, manifest | facts, path.name)
    copy_bundle(bundle, path, facts, {MODEL_CARD: card.encode()})
    write_text(run.engine / MODEL_CARD, card)
    write_text(run.exported_file, f"{path.name}\n")
    return path
