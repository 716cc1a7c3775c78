"""Every engine and precision that this machine can build: accuracy against latency, one chosen."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from zoerefine.errors import UserError
from zoerefine.export import KINDS
from zoerefine.export.build import EngineBuilder
from zoerefine.export.bundle import Engine, load_bundle, read_manifest
from zoerefine.export.engine_kinds import kind_of, misfits
from zoerefine.export.export import publish
from zoerefine.export.verify import time_all
from zoerefine.files import replacing, write_json
from zoerefine.progress import say, track
from zoerefine.run_dir import RunDir

EAGER = "eager"
AS_FAST = 1.05


@dataclass
class SweepRow:
    """One engine. Latency is 0 where it does not run here; `why` says why it is not published."""

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


def sweep(run: RunDir) -> tuple[list[SweepRow], Path]:
    """Build all, time them in turns, publish the fastest; returns the rows and the bundle.

    Also writes `engine/sweep.json` and `engine/sweep.png`.

    Raises:
        UserError: no trained weights, or no engine is within its tolerance.
    """
    builder = EngineBuilder(run)
    rows, built = build_all(builder)
    engines = {
        name: load_bundle(path)
        for name, path in built.items()
        if not misfits(read_manifest(path)["needs"], kind_of(name.split()[0]).here())
    }
    if not engines:
        raise UserError("no engine that runs here is within its tolerance: nothing published")
    times = time_engines(builder, engines)
    for row in rows:
        row.latency_ms = times.get(row.name, 0.0)
    best = choose([row for row in rows if row.latency_ms])
    best.chosen = True
    rows.insert(0, SweepRow(EAGER, "fp32", times[EAGER]))
    write_json(run.engine / "sweep.json", [asdict(row) for row in rows])
    draw(rows, run.engine / "sweep.png")
    return rows, publish(run, built[best.name])


def choose(rows: list[SweepRow]) -> SweepRow:
    """The fastest; of those that are as fast but for what timing is uncertain by, the closest."""
    fastest = min(row.latency_ms for row in rows)
    as_fast = [row for row in rows if row.latency_ms <= AS_FAST * fastest]
    return min(as_fast, key=lambda row: row.mean_rel_err)


def build_all(builder: EngineBuilder) -> tuple[list[SweepRow], dict[str, Path]]:
    """A row an engine, and the bundles of those within tolerance by the row's name."""
    wanted = []
    for name in KINDS:
        kind = kind_of(name)
        if kind.lacking():
            say(f"left out {name}: {kind.lacking()}")
        else:
            wanted += [(kind, precision) for precision in kind.precisions()]
    rows, built = [], {}
    for kind, precision in track(wanted, len(wanted), "building", "engine"):
        row = SweepRow(kind.NAME, precision)
        rows.append(row)
        try:
            path = built[row.name] = builder.bundle(kind, precision)
        except UserError as error:
            row.why = str(error)
            continue
        made = read_manifest(path)
        row.max_abs_err_m, row.mean_rel_err = made["max_abs_err_m"], made["mean_rel_err"]
        row.megabytes = path.stat().st_size / 1e6
    return rows, built


def time_engines(builder: EngineBuilder, engines: dict[str, Engine]) -> dict[str, float]:
    """Milliseconds a frame of each and of eager, in turns; inputs lie on each one's device."""
    times: dict[str, float] = {}
    for device in sorted({engine.device for engine in engines.values()}, key=str):
        runs = {name: engine.run for name, engine in engines.items() if engine.device == device}
        rgb_u8, zoe_u16 = (tensor[:1].to(device) for tensor in builder.frames)
        times |= time_all(runs | {EAGER: builder.eager(device)}, rgb_u8, zoe_u16)
    return times


def table(rows: list[SweepRow]) -> str:
    """The rows for people."""
    eager = rows[0].latency_ms
    lines = [f"{'engine':<24} {'ms':>8} {'x eager':>8} {'max m':>8} {'AbsRel':>8} {'MB':>6}"]
    for row in rows:
        speed = f"{row.latency_ms:8.2f} {eager / row.latency_ms:8.2f}" if row.latency_ms else (
            f"{'-':>8} {'-':>8}"
        )  # fmt: skip
        rest = f"{row.max_abs_err_m:8.3f} {row.mean_rel_err:8.3%} {row.megabytes:6.1f}"
        mark = "  <- chosen" if row.chosen else f"  {row.why}" if row.why else ""
        lines.append(f"{row.name:<24} {speed} {rest}{mark}")
    return "\n".join(lines)


def draw(rows: list[SweepRow], path: Path) -> None:
    """Accuracy against latency; what was not timed here is left out."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.subplots()
    shown = [row for row in rows if row.latency_ms and not row.why]
    for row in shown:
        color = "#D55E00" if row.chosen else "0.5" if row.engine == EAGER else "#0072B2"
        axis.scatter(row.latency_ms, 100 * row.mean_rel_err, s=60, color=color, zorder=3)
        label = f"{row.name}, chosen" if row.chosen else row.name
        axis.annotate(label, (row.latency_ms, 100 * row.mean_rel_err), (6, 5),
                      textcoords="offset points", color=color)  # fmt: skip
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    axis.set_xlabel(f"milliseconds a frame ({device}, batch 1, pictures in to depth out)")
    axis.set_ylabel("mean relative difference from eager, %")
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.margins(x=0.25, y=0.15)
    axis.grid(alpha=0.3)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
