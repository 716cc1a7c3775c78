"""What `auto` chooses: the best engine kind and the fastest precision on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoerefine.device import has_bf16, pick_device
from zoerefine.errors import UserError
from zoerefine.exporting.build import EngineBuilder
from zoerefine.exporting.bundle import load_bundle, read_manifest
from zoerefine.exporting.engine_kinds import EngineKind, engine_kind
from zoerefine.exporting.processor import describe_processor
from zoerefine.exporting.verify import time_interleaved
from zoerefine.files import digest_json, write_json
from zoerefine.progress import say
from zoerefine.registries import ENGINES

SAME_SPEED = 1.05  # engines within this factor of the fastest are taken as equally fast


@dataclass(frozen=True)
class ChosenEngine:
    """A built bundle, and the measurement that decided for it.

    Attributes:
        measured: {"processor", "latency_ms": {engine: ms}}; empty if nothing had to be measured.
    """

    bundle: Path
    measured: dict[str, Any] = field(default_factory=dict)


def choose(builder: EngineBuilder, engine: str, precision: str) -> ChosenEngine:
    """Build what `engine` and `precision` ask for, each of which may be auto.

    Under auto, a kind that cannot be built is named with its reason, and the next one is tried.
    Raises `UserError` if nothing can be built.
    """
    if engine != "auto":
        return choose_precision(builder, engine_kind(engine), precision)
    reasons: dict[str, str] = {}
    for name in ENGINES:
        try:
            kind = engine_kind(name)
            if kind.allowed_for_auto():
                return choose_precision(builder, kind, precision)
        except Exception as error:  # the builders of other vendors raise errors of any type
            reasons[name] = why(error)
            say(f"{name} is left out: {reasons[name]}")
    raise UserError(
        "no engine could be built: "
        + "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    )


def choose_precision(builder: EngineBuilder, kind: EngineKind, precision: str) -> ChosenEngine:
    """Build a kind's engine in a precision, or in every candidate of auto, and take the fastest.

    Raises `UserError` if it cannot be built, or is within tolerance in no candidate.
    """
    if kind.missing_requirement():
        raise UserError(kind.missing_requirement())
    bundles = build_candidates(builder, kind, candidates(kind, precision))
    if len(bundles) == 1:
        return ChosenEngine(next(iter(bundles.values())))
    measured = measure_latency(builder, kind, bundles)
    errors = {name: read_manifest(path)["mean_rel_err"] for name, path in bundles.items()}
    return ChosenEngine(bundles[fastest(measured["latency_ms"], errors)], measured)


def candidates(kind: EngineKind, precision: str) -> list[str]:
    """The precisions to build. Raises `UserError` if the kind does not have the one asked for."""
    known = kind.precisions()
    if precision == "auto":
        slow = set() if has_bf16(pick_device()) else {"bf16"}  # emulated
        return [choice for choice in known if choice not in slow | {"int8"}]
    if precision not in known:
        raise UserError(
            f"{kind.NAME} has no precision {precision!r} on this machine; known: auto, "
            f"{', '.join(known)}"
        )
    return [precision]


def build_candidates(
    builder: EngineBuilder, kind: EngineKind, precisions: list[str]
) -> dict[str, Path]:
    """The bundles within tolerance, by engine name; on a GPU only the first of them.

    Raises `UserError`, the last precision's, if there is none.
    """
    bundles: dict[str, Path] = {}
    for number, precision in enumerate(precisions, 1):
        try:
            path = builder.bundle(kind, precision)
        except UserError as error:
            if number == len(precisions) and not bundles:
                raise
            say(f"{kind.NAME} {precision} is left out: {error}")
            continue
        bundles[f"{kind.NAME} {precision}"] = path
        # On a GPU fewer bits are faster; which precision a CPU is fastest in depends on the CPU.
        if read_manifest(path)["device"] != "cpu":
            break
    return bundles


def measure_latency(
    builder: EngineBuilder, kind: EngineKind, bundles: Mapping[str, Path]
) -> dict[str, Any]:
    """Milliseconds a frame of each bundle on this CPU, measured once and then kept.

    Kept, so that the same command gives the same bundle again.
    """
    digest = digest_json(sorted(path.name for path in bundles.values()))[:16]
    path = builder.folder / f"{kind.NAME}-latency-{digest}.json"
    if not path.exists():
        engines = {name: load_bundle(bundle).forward for name, bundle in bundles.items()}
        rgb_u8, zoe_u16 = builder.frames
        times = time_interleaved(engines, rgb_u8[:1], zoe_u16[:1])
        for old in builder.folder.glob(f"{kind.NAME}-latency-*.json"):
            old.unlink()
        write_json(path, {"processor": describe_processor(), "latency_ms": times})
    return builder.run.read_json(path)


def fastest(latency_ms: Mapping[str, float], mean_rel_err: Mapping[str, float]) -> str:
    """The name of the fastest engine; of those about as fast, the most accurate one's."""
    limit = SAME_SPEED * min(latency_ms.values())
    fast = [name for name, ms in latency_ms.items() if ms <= limit]
    return min(fast, key=lambda name: mean_rel_err[name])


def why(error: Exception) -> str:
    """An error as part of a line."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
