"""Engines on the CPU against eager PyTorch: latency, throughput, load time, memory, size, error.

The refiner is the UNet (14 million parameters, random weights with heads that matter), built for
the pictures' own size. Every side takes the same uint8 and uint16 pictures and gives the same
uint16 depth, so the conversions around the network count on all sides. Sides take turns.
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
from common.refiner import no_calibration, wild_refiner
from common.report import Row, options, report, row
from common.timing import in_turns
from torch import Tensor

from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.device import has_bf16
from zoerefine.export.bundle import load_bundle, save_bundle
from zoerefine.export.engine_kinds import ExportSource, Run, kind_of
from zoerefine.export.onnx_graph import to_onnx
from zoerefine.export.precision import in_precision
from zoerefine.export.shipped_module import PrePostProcessing, Shipped
from zoerefine.progress import say, track

EAGER = "eager fp32"
BF16 = has_bf16(torch.device("cpu"))
AGAINST_EAGER = {
    ("192x256", "torchscript bf16"): 3.3,
    ("480x640", "torchscript bf16"): 5.0,
    ("192x256", "torchscript fp32"): 1.35,
    ("480x640", "torchscript fp32"): 1.35,
}
OWN_BEST = 0.95  # of what OpenVINO does by itself, at its best setting


@dataclass(frozen=True)
class Side:
    """A way to run the refiner, and the file that holds it, if one does."""

    name: str
    run: Run
    file: Path | None = None


def main() -> None:
    """Print the table, and write it where asked."""
    parser = options(__doc__)
    parser.add_argument("--model", default="unet", help="small, guided or unet")
    args = parser.parse_args()
    # In quick mode: the aims' settings alone, without torch.compile, which compiles for a minute.
    settings = [((192, 256), 1), ((480, 640), 1)]
    if not args.quick:
        settings += [((192, 256), 16), ((480, 640), 16)]
    refiner = wild_refiner(args.model)
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
    """Everything that is installed here."""
    size = source.height, source.width
    channels_last = in_precision(source.refiner, "fp32", no_calibration)
    channels_last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sides = [
        Side(EAGER, Shipped(source.refiner, *size).eval()),
        Side("eager fp32 channels-last", Shipped(channels_last, *size).eval()),
    ]
    if compiled:
        core = torch.compile(source.refiner, dynamic=False)
        sides.append(Side("torch.compile fp32", Shipped(core, *size).eval()))  # type: ignore[arg-type]
    for name, precisions in (("torchscript", ("fp32", "bf16")), ("openvino", ("fp32", "bf16"))):
        kind = kind_of(name)
        if kind.lacking():
            say(f"left out: {kind.lacking()}")
            continue
        for precision in precisions:
            if precision == "bf16" and not BF16:
                continue
            path = folder / f"{name}-{precision}-{size[0]}.ts"
            made = {"engine": name, "precision": precision, "torch": torch.__version__, "run": ""}
            save_bundle(kind.build(source, precision), made, path)
            sides.append(Side(f"{name} {precision}", load_bundle(path).run, path))
    if find_spec("onnxruntime"):
        sides.append(onnx_runtime(source, folder / f"refiner-{size[0]}.onnx"))
    else:
        say("left out: ONNX Runtime is not installed")
    return sides


def onnx_runtime(source: ExportSource, path: Path) -> Side:
    """ONNX Runtime between the same ends."""
    import onnxruntime

    path.write_bytes(to_onnx(source.refiner, source))
    settings = onnxruntime.SessionOptions()
    # Its threads would otherwise keep the cores busy while the other sides take their turns.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    ends = PrePostProcessing(source.height, source.width)

    def run(rgb_u8: Tensor, zoe_u16: Tensor) -> Tensor:
        rgb01, zoe_m = ends.before(rgb_u8, zoe_u16)
        found = session.run(None, {"rgb01": rgb01.numpy(), "zoe_m": zoe_m.numpy()})
        return ends.after(zoe_u16, zoe_m, torch.from_numpy(found[0]))

    return Side("ONNX Runtime fp32", run, path)


def measure(source: ExportSource, sides: list[Side], batch: int, seconds: float) -> list[Row]:
    """The rows of one setting."""
    where = f"{source.height}x{source.width}"
    rgb = torch.randint(0, 256, (batch, source.height, source.width, 3), dtype=torch.uint8)
    zoe = torch.randint(100, 2000, (batch, source.height, source.width)).to(torch.uint16)
    calls: dict[str, Callable[[], Any]] = {
        side.name: lambda run=side.run: run(rgb, zoe) for side in sides
    }
    bare = bare_openvino(source, sides, batch)
    times = in_turns(calls | bare, seconds)
    expected_m = sides[0].run(rgb, zoe).float() * ZOE_UNIT_M
    rows = []
    for side in sides:
        ms = times[side.name]
        half = float(np.median(ms))
        label = f"{where} batch {batch} {side.name}"
        goal = AGAINST_EAGER.get((where, side.name)) if batch == 1 else None
        error_m = (side.run(rgb, zoe).float() * ZOE_UNIT_M - expected_m).abs().max().item()
        rows += [
            row(f"{label}: p50", half, "ms"),
            row(f"{label}: p99", float(np.percentile(ms, 99)), "ms"),
            row(f"{label}: throughput", 1000 * batch / half, "images/s"),
            row(f"{label}: against eager", ratio(times[EAGER], ms), "x", goal),
            row(f"{label}: worst difference from eager", error_m, "m"),
        ]
    if bare:
        best = min((times[name] for name in bare), key=np.median)
        name = f"openvino {'bf16' if BF16 else 'fp32'}"
        share = ratio(best, times[name])
        rows.append(row(f"{where} batch {batch} {name}: of OpenVINO's own best", share, "x",
                        OWN_BEST if batch == 1 else None))  # fmt: skip
    return rows


def ratio(theirs: np.ndarray, ours: np.ndarray) -> float:
    """The median over the rounds, in each of which both sides had their turn."""
    return float(np.median(theirs / ours))


def bare_openvino(
    source: ExportSource, sides: list[Side], batch: int
) -> dict[str, Callable[[], Any]]:
    """OpenVINO by itself at several settings, on inputs that are float already."""
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
        calls[f"bare openvino, {threads} threads"] = lambda request=request: request.infer(
            inputs, share_inputs=True, share_outputs=True
        )
    return calls


def loaded(side: Side, source: ExportSource) -> list[Row]:
    """What the file costs: size, and load time and memory in a fresh process."""
    assert side.file is not None
    label = f"{source.height}x{source.width} {side.name}"
    program = Path(__file__).parent / "common" / "first_answer.py"
    words = [sys.executable, "-W", "ignore", program, side.file, source.height, source.width]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return [
        row(f"{label}: file", side.file.stat().st_size / 1e6, "MB"),
        row(f"{label}: load and first answer", found["load_s"], "s"),
        row(f"{label}: memory of it", found["memory_mb"], "MB"),
    ]


if __name__ == "__main__":
    main()
