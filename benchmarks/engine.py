"""Engines on the CPU against eager PyTorch: latency, throughput, load time, memory, size, error.

The refiner is the UNet (14 million parameters, random weights), built for the size of the
pictures. Every side takes the same uint8 and uint16 pictures and returns uint16 depth, so all
sides include pre- and post-processing. Sides take turns.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.refiner import minimal_manifest, no_calibration, random_refiner
from common.report import Row, options, report, row
from common.timing import in_turns
from torch import Tensor

from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.device import has_amx, has_bf16
from zoerefine.exporting.bundle import load_bundle, save_bundle
from zoerefine.exporting.engine_kinds import Forward, engine_kind
from zoerefine.exporting.export_source import ExportSource
from zoerefine.exporting.onnx_graph import to_onnx
from zoerefine.exporting.precision import to_precision
from zoerefine.exporting.shipped_module import PrePostProcessing, ShippedModule
from zoerefine.progress import say, track

EAGER = "eager fp32"
BF16 = has_bf16(torch.device("cpu"))
AGAINST_EAGER = {
    ("192x256", "torchscript fp32"): 1.35,
    ("480x640", "torchscript fp32"): 1.35,
}
if has_amx():  # without it bf16 may be slower than fp32
    AGAINST_EAGER |= {
        ("192x256", "torchscript bf16"): 3.3,
        ("480x640", "torchscript bf16"): 5.0,
    }
OPENVINO_SHARE = 0.95  # of the speed of OpenVINO called directly, at its best setting


@dataclass(frozen=True)
class Side:
    """A way to run the refiner, and its file if it has one."""

    name: str
    forward: Forward
    file: Path | None = None


def main() -> None:
    """Print the table; with --json also write it to a file."""
    parser = options(__doc__)
    parser.add_argument("--model", default="unet", help="small, guided or unet")
    args = parser.parse_args()
    # --quick measures only what has a goal, and no torch.compile, which compiles for a minute.
    settings = [((192, 256), 1), ((480, 640), 1)]
    if not args.quick:
        settings += [((192, 256), 16), ((480, 640), 16)]
    refiner = random_refiner(args.model)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="engine-") as folder, torch.inference_mode():
        for size, batch in track(settings, len(settings), "measuring", "setting"):
            source = ExportSource(refiner, *size, no_calibration)
            sides = make_sides(source, Path(folder), compiled=not args.quick)
            rows += measure(source, sides, batch, seconds=5 if args.quick else 60)
            if size == settings[0][0] and batch == 1:
                files = [side for side in sides if side.file]
                for side in files if not args.quick else files[1:2]:
                    rows += loaded(side, source)
    report(rows, args.json)


def make_sides(source: ExportSource, folder: Path, compiled: bool) -> list[Side]:
    """All sides that are installed."""
    size = source.height, source.width
    channels_last = to_precision(source.refiner, "fp32", no_calibration)
    channels_last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sides = [
        Side(EAGER, ShippedModule(source.refiner, *size).eval()),
        Side("eager fp32 channels-last", ShippedModule(channels_last, *size).eval()),
    ]
    if compiled:
        core = torch.compile(source.refiner, dynamic=False)
        sides.append(Side("torch.compile fp32", ShippedModule(core, *size).eval()))  # type: ignore[arg-type]
    for name, precisions in (("torchscript", ("fp32", "bf16")), ("openvino", ("fp32", "bf16"))):
        kind = engine_kind(name)
        if kind.missing_requirement():
            say(f"{name} is left out: {kind.missing_requirement()}")
            continue
        for precision in precisions:
            if precision == "bf16" and not BF16:
                continue
            path = folder / f"{name}-{precision}-{size[0]}.ts"
            save_bundle(kind.build(source, precision), minimal_manifest(name, precision), path)
            sides.append(Side(f"{name} {precision}", load_bundle(path).forward, path))
    if find_spec("onnxruntime"):
        sides.append(onnx_runtime(source, folder / f"refiner-{size[0]}.onnx"))
    else:
        say("ONNX Runtime is left out: it is not installed")
    return sides


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

    return Side("ONNX Runtime fp32", forward, path)


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
        goal = AGAINST_EAGER.get((where, side.name)) if batch == 1 else None
        depth_m = side.forward(rgb, zoe)[0].float() * ZOE_UNIT_M
        error_m = (depth_m - expected_m).abs().max().item()
        rows += [
            row(f"{label}: p50", half, "ms"),
            row(f"{label}: p99", float(np.percentile(ms, 99)), "ms"),
            row(f"{label}: throughput", 1000 * batch / half, "images/s"),
            row(f"{label}: against eager", ratio(times[EAGER], ms), "x", goal),
            row(f"{label}: worst difference from eager", error_m, "m"),
        ]
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

    path = next(side.file for side in sides if side.name == "ONNX Runtime fp32")
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


def loaded(side: Side, source: ExportSource) -> list[Row]:
    """Size of the file, and load time and memory in a new process."""
    assert side.file is not None
    label = f"{source.height}x{source.width} {side.name}"
    program = Path(__file__).parent / "common" / "first_answer.py"
    words = [sys.executable, "-W", "ignore", program, side.file, source.height, source.width]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return [
        row(f"{label}: file", side.file.stat().st_size / 1e6, "MB"),
        row(f"{label}: load and first answer", found["load_s"], "s"),
        row(f"{label}: memory", found["memory_mb"], "MB"),
    ]


if __name__ == "__main__":
    main()
