"""Which engine and precision a bundle gets: those that were named, or the fastest of this machine.

`auto` chooses the fastest engine of those within tolerance.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_json, write_json
from zoerefine.base.machine.device import has_bf16, pick_device
from zoerefine.base.machine.processor import describe_processor
from zoerefine.base.messages import say
from zoerefine.base.registries import ENGINES
from zoerefine.depth.exporting.build import EngineBuilder
from zoerefine.depth.exporting.bundle.bundle import Engine, load_bundle, read_manifest
from zoerefine.depth.exporting.engine_kinds import EngineKind, engine_kind
from zoerefine.depth.exporting.verify import call_on_first, time_interleaved

SAME_SPEED = 1.05  # engines within this factor of the fastest are taken as equally fast


# A built bundle, and the measurement that decided: {"processor", "latency_ms": {engine: ms}}; empty
# if nothing had to be measured.
Chosen = tuple[Path, dict[str, Any]]


def choose(builder: EngineBuilder, engine: str, precision: str) -> Chosen:
    """Build what `engine` and `precision` ask for, each of which may be auto; take the fastest.

    Under auto, what cannot be built, checked or loaded is named with its reason, and the rest goes
    on. What was asked for by name keeps its error.

    Raises `UserError` if nothing can be built.
    """
    if engine != "auto" and precision != "auto":
        kind = usable_kind(engine)
        check_precision(kind, precision)
        return builder.bundle(kind, precision), {}
    reasons: dict[str, str] = {}
    bundles: dict[str, Path] = {}
    for kind in kinds_for_auto(reasons) if engine == "auto" else [usable_kind(engine)]:
        with named_if_broken(kind.NAME, reasons):
            for candidate in candidates(kind, precision):
                name = f"{kind.NAME} {candidate}"
                with named_if_broken(name, reasons):
                    bundles[name] = builder.bundle(kind, candidate)
                    # On a GPU fewer bits are faster; on a CPU it depends on the processor.
                    if read_manifest(bundles[name])["device"] != "cpu":
                        break
    if len(bundles) > 1:
        return fastest_bundle(builder, bundles, reasons)
    if bundles:
        return next(iter(bundles.values())), {}
    raise UserError(no_engine(reasons))


def usable_kind(name: str) -> EngineKind:
    """A kind that this machine can build. Raises `UserError` otherwise."""
    kind = engine_kind(name)
    if kind.missing_requirement():
        raise UserError(kind.missing_requirement())
    return kind


def kinds_for_auto(reasons: dict[str, str]) -> Iterator[EngineKind]:
    """The kinds that this machine can build and run."""
    for name in ENGINES:
        with named_if_broken(name, reasons):
            kind = engine_kind(name)
            if kind.allowed_for_auto():
                yield kind


def candidates(kind: EngineKind, precision: str) -> list[str]:
    """The precisions to build. Raises `UserError` if the kind does not have the one asked for."""
    if precision != "auto":
        check_precision(kind, precision)
        return [precision]
    slow = set() if has_bf16(pick_device()) else {"bf16"}  # emulated
    return [choice for choice in kind.precisions() if choice not in slow | {"int8"}]


def check_precision(kind: EngineKind, precision: str) -> None:
    """Raises `UserError` if the kind does not have this precision here."""
    if precision not in kind.precisions():
        raise UserError(
            f"{kind.NAME} has no precision {precision!r} on this machine; known: auto, "
            f"{', '.join(kind.precisions())}"
        )


@contextmanager
def named_if_broken(name: str, reasons: dict[str, str]) -> Iterator[None]:
    """Record and say why an engine is left out, instead of raising.

    The libraries of other vendors raise errors of any type.
    """
    try:
        yield
    except Exception as error:
        reasons[name] = why(error)
        say(f"{name} is left out: {reasons[name]}")


def why(error: Exception) -> str:
    """An error as part of a line."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"it needs the package {error.name}, which is not installed"
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def no_engine(reasons: Mapping[str, str]) -> str:
    """The message where nothing could be built."""
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return f"no engine could be built: {listed}"


def fastest_bundle(
    builder: EngineBuilder, bundles: Mapping[str, Path], reasons: dict[str, str]
) -> Chosen:
    """The bundle that is fastest here, measured once and then kept.

    Kept, so that the same command gives the same bundle again. Raises `UserError` if none loads.
    """
    digest = digest_json(sorted(path.name for path in bundles.values()))[:16]
    kept = builder.folder / f"latency-{digest}.json"
    if not kept.exists():
        engines: dict[str, Engine] = {}
        for name, path in bundles.items():
            with named_if_broken(name, reasons):
                engines[name] = load_bundle(path)
        if not engines:
            raise UserError(no_engine(reasons))
        times = measure_latency(builder, engines)
        for old in builder.folder.glob("latency-*.json"):
            old.unlink()
        write_json(kept, {"processor": describe_processor(), "latency_ms": times})
    measured = builder.run.read_json(kept)
    errors = {name: read_manifest(bundles[name])["mean_rel_err"] for name in measured["latency_ms"]}
    return bundles[fastest(measured["latency_ms"], errors)], measured


def measure_latency(
    builder: EngineBuilder,
    engines: Mapping[str, Engine],
    others: Mapping[str, Callable[[], Any]] | None = None,
) -> dict[str, float]:
    """Milliseconds a frame of each engine on this machine, and of other calls, in turns."""
    calls = {
        name: call_on_first(engine.forward, builder.frames, engine.device)
        for name, engine in engines.items()
    }
    return time_interleaved(calls | dict(others or {}))


def fastest(latency_ms: Mapping[str, float], mean_rel_err: Mapping[str, float]) -> str:
    """The name of the fastest engine; of those about as fast, the most accurate one's."""
    limit = SAME_SPEED * min(latency_ms.values())
    fast = [name for name, ms in latency_ms.items() if ms <= limit]
    return min(fast, key=lambda name: mean_rel_err[name])
