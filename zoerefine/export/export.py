"""A run becomes an engine bundle: the best that this machine can run, built, checked, published."""

import shutil
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.export.build import EngineBuilder
from zoerefine.export.engine_kinds import Kind, auto, kind_of
from zoerefine.export.verify import TooFarOff
from zoerefine.files import replacing
from zoerefine.progress import say
from zoerefine.run_dir import RunDir


def export(run: RunDir, engine: str = "auto", precision: str = "auto") -> Path:
    """Build, check and publish `engine/refiner.ts` in the run's directory.

    Args:
        engine: auto (the best that this machine can run), or one of `KINDS`.
        precision: auto (the fastest but int8 that stays within tolerance), or one that the
            engine has.

    Raises:
        UserError: no trained weights; no such engine here; too far from eager (not published).
    """
    kind = kind_of(auto() if engine == "auto" else engine)
    first, *others = candidates(kind, precision)
    builder = EngineBuilder(run)
    for other in others:
        try:
            return publish(run, builder.bundle(kind, first))
        except TooFarOff as error:
            say(f"{error}; trying {other}")
            first = other
    return publish(run, builder.bundle(kind, first))


def candidates(kind: Kind, precision: str) -> list[str]:
    """The precisions to try, the fastest first. Raises `UserError` where there is none."""
    known = kind.precisions()
    if precision == "auto":
        return [choice for choice in known if choice != "int8"]
    if precision not in known:
        raise UserError(
            f"{kind.NAME} has no precision {precision!r} here; known: auto, {', '.join(known)}"
        )
    return [precision]


def publish(run: RunDir, built: Path) -> Path:
    """Copy a bundle to where the run's engine is looked for."""
    with replacing(run.bundle) as temporary:
        shutil.copyfile(built, temporary)
    return run.bundle
