"""Engines on the CPU against eager PyTorch: latency, throughput, load time, memory, size, error.

The refiner is the UNet (14 million parameters, random weights), built for the size of the
pictures. Every side takes the same uint8 and uint16 pictures and returns uint16 depth, so all
sides include pre- and post-processing. Sides take turns.

With --frames FOLDER, a data set: instead of times, what every kind of bundle must hold on its
frames, at three sizes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.agreement import agreement_rows
from common.first_answer import CORE
from common.refiner import minimal_manifest, no_calibration, random_refiner
from common.report import Row, options, report, row
from common.timing import in_turns
from torch import Tensor

from zoerefine.base.machine.device import has_amx, has_bf16
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.base.registries import ENGINES
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.exporting.bundle.bundle import load_bundle, save_bundle
from zoerefine.depth.exporting.engine_kinds import EngineKind, Forward, engine_kind
from zoerefine.depth.exporting.onnx_graph import to_onnx
from zoerefine.depth.exporting.precision import to_precision
from zoerefine.depth.exporting.shipped_module import PrePostProcessing, ShippedModule
from zoerefine.depth.exporting.source import ExportSource, sample_frames
from zoerefine.depth.model import RefinerNetwork

EAGER, ONNX_RUNTIME = "eager fp32", "ONNX Runtime fp32, core only"
BF16 = has_bf16(torch.device("cpu"))
# Of the speed of the best kind, against eager: batch size -> at least.
AIMS = {1: 4.0, 16: 5.0} if has_amx() else {1: 1.5, 16: 1.5}
PROCESSOR = "with AMX" if has_amx() else "without AMX"
EXPORT_S = {"onnx": 20, "aoti": 60}  # on two cores, at most
SLOW_EXPORTS = ("aoti",)  # left out by --quick
SIZES = ((192, 256), (480, 640))
OPENVINO_SHARE = 0.95  # of the speed of OpenVINO called directly, at its best setting


@dataclass(frozen=True)
class Side:
    """A way to run the refiner, and its file if it has one."""

    name: str
    forward: Forward
    file: Path | None = None
    kind: str = ""
    export_s: float = 0.0


def main() -> None:
    """Print the table; with --json also write it to a file."""
    parser = options(__doc__)
    parser.add_argument("--model", default="unet", help="small, guided or unet")
    parser.add_argument("--frames", metavar="FOLDER", help="a data set with pseudo depth")
    args = parser.parse_args()
    refiner = random_refiner(args.model)
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        if args.frames:
            rows = frame_rows(ExportSource(refiner, *SIZES[0], no_calibration), args, Path(folder))
        else:
            rows = time_rows(refiner, args.quick, Path(folder))
    report(rows, args)


def frame_rows(source: ExportSource, args: argparse.Namespace, folder: Path) -> list[Row]:
    """Rows of every kind of bundle on the frames of a data set."""
    bundles = make_bundles(source, folder, args.quick)
    frames = sample_frames(open_dataset(args.frames))
    rows: list[Row] = []
    for side in track(bundles, len(bundles), "checking", "bundle"):
        assert side.file is not None
        rows += agreement_rows(side.name, load_bundle(side.file), source, frames, args.quick)
    return rows


def time_rows(refiner: RefinerNetwork, quick: bool, folder: Path) -> list[Row]:
    """Rows of all sides, at two sizes and two batch sizes."""
    say(f"this processor is in the class {PROCESSOR}")
    # --quick measures only what has a goal, and nothing that compiles for a minute.
    settings = [(size, batch) for batch in ((1,) if quick else (1, 16)) for size in SIZES]
    rows: list[Row] = []
    with torch.inference_mode():
        for size, batch in track(settings, len(settings), "measuring", "setting"):
            source = ExportSource(refiner, *size, no_calibration)
            sides = make_sides(source, folder, quick)
            rows += measure(source, sides, batch, seconds=5 if quick else 60)
            if (size, batch) == settings[0]:
                for side in sides:
                    rows += file_rows(side, source) if side.file else []
    return rows


def make_sides(source: ExportSource, folder: Path, quick: bool) -> list[Side]:
    """All sides that are installed."""
    size = source.height, source.width
    channels_last = to_precision(source.refiner, "fp32", no_calibration)
    channels_last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sides = [
        Side(EAGER, ShippedModule(source.refiner, *size).eval()),
        Side("eager fp32 channels-last", ShippedModule(channels_last, *size).eval()),
    ]
    if not quick:
        core = torch.compile(source.refiner, dynamic=False)
        sides.append(Side("torch.compile fp32", ShippedModule(core, *size).eval()))  # type: ignore[arg-type]
    sides += make_bundles(source, folder, quick)
    if find_spec("onnxruntime"):
        sides.append(onnx_runtime(source, folder / f"{CORE}-{size[0]}.onnx"))
    else:
        say("ONNX Runtime is left out: it is not installed")
    return sides


def make_bundles(source: ExportSource, folder: Path, quick: bool) -> list[Side]:
    """A bundle of every kind that runs on this CPU, in fp32 and, if the CPU has it, bf16.

    They are exported once for each size.
    """
    bundles = []
    for name in ENGINES:
        kind = engine_kind(name)
        missing = kind.missing_requirement()
        if not missing and kind.machine_facts().get("GPU architecture") == "none":
            missing = "it runs on a GPU"
        if not missing and quick and name in SLOW_EXPORTS:
            missing = "its export takes a minute"
        if missing:
            say(f"{name} is left out: {missing}")
            continue
        for precision in ("fp32", "bf16") if BF16 else ("fp32",):
            if precision in kind.precisions():
                bundles.append(bundle_of(kind, precision, source, folder))
    return bundles


def bundle_of(kind: EngineKind, precision: str, source: ExportSource, folder: Path) -> Side:
    """A bundle as a side; one that is in the folder already is not exported again."""
    path = folder / f"{kind.NAME}-{precision}-{source.height}{kind.CONTAINER.suffix}"
    start = time.perf_counter()
    if not path.exists():
        with torch.inference_mode(mode=False):
            built = kind.build(source, precision)
        save_bundle(built, minimal_manifest(kind.NAME, precision), path)
    took = time.perf_counter() - start
    return Side(f"{kind.NAME} {precision}", load_bundle(path).forward, path, kind.NAME, took)


def onnx_runtime(source: ExportSource, path: Path) -> Side:
    """ONNX Runtime with the same pre- and post-processing."""
    import onnxruntime

    path.write_bytes(to_onnx(source.core("fp32"), source))
    settings = onnxruntime.SessionOptions()
    # Its threads would otherwise spin on the cores while other sides run.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    processing = PrePostProcessing(source.height, source.width)

    def forward(rgb_u8: Tensor, zoe_u16: Tensor) -> list[Tensor]:
        rgb01, zoe_m = processing.before(rgb_u8, zoe_u16)
        found = session.run(None, {"rgb01": rgb01.numpy(), "zoe_m": zoe_m.numpy()})
        return processing.after(zoe_u16, zoe_m, [torch.from_numpy(found[0])])

    return Side(ONNX_RUNTIME, forward, path)


def measure(source: ExportSource, sides: list[Side], batch: int, seconds: float) -> list[Row]:
    """The rows of one setting."""
    where = f"{source.height}x{source.width}"
    rgb = torch.randint(0, 256, (batch, source.height, source.width, 3), dtype=torch.uint8)
    zoe = torch.randint(100, 2000, (batch, source.height, source.width)).to(torch.uint16)
    calls: dict[str, Callable[[], Any]] = {
        side.name: lambda forward=side.forward: forward(rgb, zoe) for side in sides
    }
    direct = direct_openvino(source, sides, batch)
    times = in_turns(calls | direct, seconds)
    expected_m = sides[0].forward(rgb, zoe)[0].float() * ZOE_UNIT_M
    rows = []
    for side in sides:
        ms = times[side.name]
        half = float(np.median(ms))
        label = f"{where} batch {batch} {side.name}"
        depth_m = side.forward(rgb, zoe)[0].float() * ZOE_UNIT_M
        error_m = (depth_m - expected_m).abs().max().item()
        rows += [
            row(f"{label}: p50", half, "ms"),
            row(f"{label}: p99", float(np.percentile(ms, 99)), "ms"),
            row(f"{label}: throughput", 1000 * batch / half, "images/s"),
            row(f"{label}: against eager", ratio(times[EAGER], ms), "x"),
            row(f"{label}: worst difference from eager", error_m, "m"),
        ]
    speed, name = max((ratio(times[EAGER], times[one.name]), one.name) for one in sides if one.kind)
    label = f"{where} batch {batch} best kind, {PROCESSOR} ({name}): against eager"
    rows.append(row(label, speed, "x", at_least=AIMS[batch]))
    if direct:
        best = min((times[name] for name in direct), key=np.median)
        name = f"openvino {'bf16' if BF16 else 'fp32'}"
        share = ratio(best, times[name])
        rows.append(row(f"{where} batch {batch} {name}: of OpenVINO called directly", share, "x",
                        OPENVINO_SHARE if batch == 1 else None))  # fmt: skip
    return rows


def ratio(theirs: np.ndarray, ours: np.ndarray) -> float:
    """The median over the rounds, in each of which both sides ran once."""
    return float(np.median(theirs / ours))


def direct_openvino(
    source: ExportSource, sides: list[Side], batch: int
) -> dict[str, Callable[[], Any]]:
    """OpenVINO called directly, at several settings, on inputs that are already float."""
    if not any(side.name.startswith("openvino") for side in sides):
        return {}
    import openvino

    path = next(side.file for side in sides if side.name == ONNX_RUNTIME)
    core = openvino.Core()
    inputs = [tensor.numpy() for tensor in source.example(batch)]
    calls: dict[str, Callable[[], Any]] = {}
    for threads in (0, torch.get_num_threads()):
        hints = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if BF16 else "f32",
            "INFERENCE_NUM_THREADS": threads,
        }
        request = core.compile_model(path, "CPU", hints).create_infer_request()
        calls[f"openvino called directly, {threads} threads"] = lambda request=request: (
            request.infer(inputs, share_inputs=True, share_outputs=True)
        )
    return calls


def file_rows(side: Side, source: ExportSource) -> list[Row]:
    """Export time, size of the file, and load time and memory in a new process."""
    assert side.file is not None
    label = f"{source.height}x{source.width} {side.name}"
    program = Path(__file__).parent / "common" / "first_answer.py"
    words = [sys.executable, "-W", "ignore", program, side.file, source.height, source.width]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    rows = [
        row(f"{label}: file", side.file.stat().st_size / 1e6, "MB"),
        row(f"{label}: load", found["load_s"], "s"),
        row(f"{label}: first call", found["first_s"], "s"),
        row(f"{label}: memory", found["memory_mb"], "MB"),
    ]
    if side.kind:
        most = EXPORT_S.get(side.kind)
        rows.insert(0, row(f"{label}: export", side.export_s, "s", at_most=most))
    return rows


if __name__ == "__main__":
    main()
