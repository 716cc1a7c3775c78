"""From a run to its engine bundle: built, checked, published with its model card."""

from pathlib import Path
from typing import Any

from zoerefine.exporting.auto import choose
from zoerefine.exporting.build import EngineBuilder
from zoerefine.exporting.bundle import MODEL_CARD, copy_bundle, read_manifest
from zoerefine.exporting.engine_kinds import engine_kind
from zoerefine.exporting.model_card import model_card
from zoerefine.files import write_text
from zoerefine.run_dir import RunDir


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
    choice = choose(EngineBuilder(run), engine, precision)
    return publish(run, choice.bundle, choice.measured)


def publish(run: RunDir, built: Path, measured: dict[str, Any]) -> Path:
    """Copy a built bundle, with its model card, to where the run's engine is looked for.

    Its name has the suffix of its container; a bundle of another container stays.

    Args:
        measured: what the bundle was chosen by, for its manifest; see `auto.ChosenEngine`.
    """
    facts = {"choice": measured} if measured else {}
    manifest = read_manifest(built)
    path = run.engine / f"refiner{engine_kind(manifest['engine']).CONTAINER.suffix}"
    card = model_card(run, manifest | facts, path.name)
    copy_bundle(built, path, facts, {MODEL_CARD: card.encode()})
    write_text(run.engine / MODEL_CARD, card)
    return path
