"""Every engine and precision that this machine can build, compared; the fastest is published."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing, write_json
from zoerefine.base.machine.device import pick_device, without_strict_mode
from zoerefine.base.machine.processor import describe_processor
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.base.registries import ENGINES
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.exporting.build import EngineBuilder
from zoerefine.depth.exporting.bundle.bundle import load_bundle, read_manifest
from zoerefine.depth.exporting.engine_choice import fastest, measure_latency, why
from zoerefine.depth.exporting.engine_kinds import EngineKind, engine_kind
from zoerefine.depth.exporting.export import publish
from zoerefine.depth.exporting.verify import call_on_first
from zoerefine.lab.analysis.pictures.style import plain_style

EAGER = "eager"


@dataclass
class SweepRow:
    """One engine of the sweep.

    Attributes:
        latency_ms: 0 if this machine cannot run it.
        why: why it was not built or is not within tolerance; "" if it was and is.
    """

    engine: str
    precision: str
    latency_ms: float = 0.0
    max_abs_err_m: float = 0.0
    mean_rel_err: float = 0.0
    megabytes: float = 0.0
    chosen: bool = False
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.engine} {self.precision}"


@without_strict_mode()
def sweep(run: RunDir) -> tuple[list[SweepRow], Path]:
    """Build all, time them in turns, publish the fastest; returns the rows and the bundle.

    Also writes `engine/sweep.json` and `engine/sweep.png`.

    Raises:
        UserError: no trained weights, or no engine is within its tolerance.
    """
    builder = EngineBuilder(run)
    rows, bundles = build_all(builder)
    engines = {
        name: load_bundle(path)
        for name, path in bundles.items()
        if "latency_ms" in read_manifest(path)  # this machine runs it
    }
    if not engines:
        raise UserError("no engine that this machine runs is within its tolerance: none published")
    device = pick_device()
    eager = call_on_first(builder.eager(device), builder.frames, device)
    times = measure_latency(builder, engines, {EAGER: eager})
    for row in rows:
        row.latency_ms = times.get(row.name, 0.0)
    timed = {row.name: row for row in rows if row.latency_ms}
    latency_ms = {name: row.latency_ms for name, row in timed.items()}
    best = fastest(latency_ms, {name: row.mean_rel_err for name, row in timed.items()})
    timed[best].chosen = True
    rows.insert(0, SweepRow(EAGER, "fp32", times[EAGER]))
    write_json(run.engine / "sweep.json", [asdict(row) for row in rows])
    draw(rows, run.engine / "sweep.png")
    measured = {"processor": describe_processor(), "latency_ms": latency_ms}
    return rows, publish(run, bundles[best], measured)


def build_all(builder: EngineBuilder) -> tuple[list[SweepRow], dict[str, Path]]:
    """A row for each engine, and the bundles of those within tolerance by the row's name."""
    wanted: list[tuple[EngineKind, str]] = []
    for name in ENGINES:
        kind = engine_kind(name)
        if kind.missing_requirement():
            say(f"{name} is left out: {kind.missing_requirement()}")
        else:
            wanted += [(kind, precision) for precision in kind.precisions()]
    rows, bundles = [], {}
    for kind, precision in track(wanted, len(wanted), "building", "engine"):
        row = SweepRow(kind.NAME, precision)
        rows.append(row)
        try:
            path = bundles[row.name] = builder.bundle(kind, precision)
        except Exception as error:  # the builders of other vendors raise errors of any type
            row.why = why(error)
            continue
        manifest = read_manifest(path)
        row.max_abs_err_m, row.mean_rel_err = manifest["max_abs_err_m"], manifest["mean_rel_err"]
        row.megabytes = path.stat().st_size / 1e6
    return rows, bundles


def table(rows: list[SweepRow]) -> str:
    """The rows for people. The errors are differences from the eager refiner."""
    eager = rows[0].latency_ms
    lines = [f"{'engine':<24} {'ms':>8} {'speed':>8} {'worst m':>8} {'mean %':>8} {'MB':>6}"]
    for row in rows:
        speed = f"{row.latency_ms:8.2f} {eager / row.latency_ms:7.2f}x" if row.latency_ms else (
            f"{'-':>8} {'-':>8}"
        )  # fmt: skip
        rest = f"{row.max_abs_err_m:8.3f} {100 * row.mean_rel_err:8.3f} {row.megabytes:6.1f}"
        mark = "  <- chosen" if row.chosen else f"  {row.why}" if row.why else ""
        lines.append(f"{row.name:<24} {speed} {rest}{mark}")
    return "\n".join(lines)


@plain_style()
def draw(rows: list[SweepRow], path: Path) -> None:
    """Accuracy against latency of the engines that were timed."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.subplots()
    for row in rows:
        if not row.latency_ms or row.why:
            continue
        color = "#D55E00" if row.chosen else "0.5" if row.engine == EAGER else "#0072B2"
        axis.scatter(row.latency_ms, 100 * row.mean_rel_err, s=60, color=color, zorder=3)
        label = f"{row.name}, chosen" if row.chosen else row.name
        axis.annotate(label, (row.latency_ms, 100 * row.mean_rel_err), (6, 5),
                      textcoords="offset points", color=color)  # fmt: skip
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    axis.set_xlabel(f"milliseconds a frame ({device}, batch 1, with pre- and post-processing)")
    axis.set_ylabel("mean relative difference from eager, %")
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.margins(x=0.25, y=0.15)
    axis.grid(alpha=0.3)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
