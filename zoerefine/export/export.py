"""A run becomes an engine bundle: build, compare with eager on real frames, time, publish."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoerefine import __version__
from zoerefine.config import load_config
from zoerefine.data.decode import read_rgb, read_zoe
from zoerefine.data.readers import open_dataset
from zoerefine.device import has_bf16
from zoerefine.errors import UserError
from zoerefine.export import tensorrt, verify
from zoerefine.export.bundle import save_bundle
from zoerefine.export.module import Shipped
from zoerefine.export.torchscript import build_torchscript, quiet
from zoerefine.model import Refiner
from zoerefine.progress import say
from zoerefine.run_dir import RunDir
from zoerefine.train.checkpoint import load_refiner

FRAMES = 8  # real frames that an engine is compared on
PRECISIONS = ("fp32", "fp16", "bf16")


def export(run: RunDir, engine: str = "auto", precision: str = "auto") -> Path:
    """Build, check and publish `engine/refiner.ts` in the run's directory.

    Args:
        engine: auto (TensorRT where it can be built, else TorchScript), torchscript, tensorrt.
        precision: auto (the fastest that stays within tolerance), fp32, bf16; TensorRT: fp16 too.

    Raises:
        UserError: no trained weights; no such engine here; too far from eager (not published).
    """
    refiner = load_refiner(run)
    cfg = load_config(run.config_file)
    if engine == "auto":
        engine = "tensorrt" if tensorrt.available() else "torchscript"
    if engine == "tensorrt":
        tensorrt.import_runtime()
    device = torch.device("cuda" if engine == "tensorrt" else "cpu")
    size = cfg.CACHE.HEIGHT, cfg.CACHE.WIDTH
    rgb_u8, zoe_u16 = (tensor.to(device) for tensor in sample_frames(cfg.DATA.ROOT))
    eager = Shipped(refiner, *size).eval().to(device)
    for choice in candidates(engine, precision, device):
        module = build(refiner, engine, choice, *size)
        accuracy = verify.compare(module, eager, rgb_u8, zoe_u16)
        if verify.within_tolerance(accuracy, choice) or precision != "auto":
            break
        say(f"{engine} in {choice} is {accuracy.max_abs_err_m:.3f} m off: trying another")
    verify.check_tolerance(accuracy, choice)
    latency = verify.time_both(module, eager, rgb_u8, zoe_u16)
    path = run.engine / "refiner.ts"
    manifest = make_manifest(run, engine, choice) | verify.as_rows(accuracy, latency)
    save_bundle(module, manifest, path)
    return path


def candidates(engine: str, precision: str, device: torch.device) -> list[str]:
    """The precisions to try, the fastest first."""
    known = {"torchscript": ("fp32", "bf16"), "tensorrt": PRECISIONS}
    if engine not in known:
        raise UserError(f"no engine {engine!r}; known: auto, {', '.join(known)}")
    if precision == "auto":
        if engine == "tensorrt":
            return ["fp16", "fp32"]
        return ["bf16", "fp32"] if has_bf16(device) else ["fp32"]
    if precision not in known[engine]:
        raise UserError(
            f"{engine} has no precision {precision!r}; known: auto, {', '.join(known[engine])}"
        )
    return [precision]


def build(
    refiner: Refiner, engine: str, precision: str, height: int, width: int
) -> torch.jit.ScriptModule:
    """The shipped module with its engine."""
    if engine == "torchscript":
        return build_torchscript(refiner, height, width, precision)
    core = tensorrt.build_core(refiner, height, width, precision)
    with quiet():
        shipped: nn.Module = Shipped(core, height, width).eval()
        return torch.jit.script(shipped)


def sample_frames(root: str) -> tuple[Tensor, Tensor]:
    """Real frames from all over the data set: uint8 [B, H, W, 3] and uint16 [B, H, W]."""
    frames = [frame for frame in open_dataset(root).frames if frame.zoe is not None]
    chosen = [frames[i] for i in np.linspace(0, len(frames) - 1, FRAMES).astype(int)]
    pictures = [(read_rgb(f.rgb), read_zoe(f.zoe)) for f in chosen if f.zoe is not None]
    height, width = pictures[0][1].shape
    alike = [(rgb, zoe) for rgb, zoe in pictures if zoe.shape == (height, width)]
    rgb_u8, zoe_u16 = (torch.from_numpy(np.stack(field)) for field in zip(*alike, strict=True))
    return rgb_u8, zoe_u16


def make_manifest(run: RunDir, engine: str, precision: str) -> dict[str, Any]:
    """Where the bundle comes from and what it needs."""
    provenance = run.read_json(run.provenance_file)
    results = run.read_json(run.results_file)
    manifest = {
        "zoerefine": __version__,
        "engine": engine,
        "precision": precision,
        "commit": provenance.get("commit", ""),
        "dirty_digest": provenance.get("dirty_digest", ""),
        "run": run.path.name,
        "config_digest": provenance.get("config_digest", ""),
        "weights": run.weights_digest_file.read_text().strip(),
        "data": results["data"],
        "pseudo_label": results["pseudo_label"],
        "metrics": results.get("test", {}).get("refined", {}),
        "inputs": {"rgb": "uint8 [B, H, W, 3]", "zoe": "uint16 [B, H, W], metres * 256"},
        "output": "uint16 [B, H, W], metres * 256",
        "torch": torch.__version__.split("+")[0],
    }
    if engine == "tensorrt":
        manifest["gpu"] = torch.cuda.get_device_name()
        manifest["gpu_capability"] = list(torch.cuda.get_device_capability())
    return manifest
