"""Builds a run's engines, one bundle a kind and precision, and keeps those found right."""

import copy
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoerefine import __version__
from zoerefine.config import load_config, training_size
from zoerefine.errors import UserError
from zoerefine.export.bundle import load_bundle, read_manifest, save_bundle
from zoerefine.export.engine_kinds import Built, ExportSource, Kind, Run, misfits
from zoerefine.export.frames import FRAMES, calibration_batches, sample_frames
from zoerefine.export.shipped_module import Shipped
from zoerefine.export.verify import check_tolerance, compare, time_all
from zoerefine.files import digest_file, digest_json
from zoerefine.locks import lock
from zoerefine.progress import say
from zoerefine.run_dir import RunDir
from zoerefine.train.checkpoint import load_refiner

PACKAGE = Path(__file__).parents[1]


class EngineBuilder:
    """A run's refiner, and its engines in `engine/builds/`.

    Raises `UserError` where the run has no trained weights.
    """

    def __init__(self, run: RunDir) -> None:
        cfg = load_config(run.config_file)
        height, width = training_size(cfg)
        self.run = run
        self.root = cfg.DATA.ROOT
        calibration = partial(calibration_batches, run, self.root, height, width)
        self.source = ExportSource(load_refiner(run), height, width, calibration)

    @cached_property
    def frames(self) -> tuple[Tensor, Tensor]:
        """Real frames to compare on: uint8 [N, H, W, 3], uint16 [N, H, W]."""
        return sample_frames(self.root)

    def eager(self, device: torch.device) -> nn.Module:
        """The refiner as it was trained, between the same ends."""
        source = self.source
        shipped = Shipped(copy.deepcopy(source.refiner), source.height, source.width)
        return shipped.eval().to(device)

    def bundle(self, kind: Kind, precision: str) -> Path:
        """The bundle of an engine within tolerance: built now, or kept from before.

        Raises:
            TooFarOff: it is not within tolerance.
            UserError: it cannot be built here.
        """
        if kind.lacking():
            raise UserError(kind.lacking())
        path = self.path_of(kind, precision)
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock(path.parent / ".lock"):  # of two exports the second uses what the first made
            if is_whole(path):
                say(f"using {path.name}, built before")
            else:
                self.build(kind, precision, path)
        return path

    def build(self, kind: Kind, precision: str, path: Path) -> None:
        """Build a bundle, check it, and remove what it takes the place of."""
        say(f"building {kind.NAME} in {precision}")
        built = kind.build(self.source, precision)
        manifest = make_manifest(self.run, kind.NAME, precision)
        unchecked = path.with_suffix(".unchecked")
        try:
            save_bundle(built, manifest, unchecked)
            measured = self.measure(kind, built, unchecked, precision)
        finally:
            unchecked.unlink(missing_ok=True)
        save_bundle(built, manifest | measured, path)
        for old in set(path.parent.glob(f"*{kind.NAME}-{precision}-*")) - {path}:
            old.unlink()

    def path_of(self, kind: Kind, precision: str) -> Path:
        """Named by the digest of weights, shapes, precision, versions, code and machine."""
        code = [*PACKAGE.glob("export/*.py"), *PACKAGE.glob("model/*.py")]
        facts = {
            "weights": self.run.weights_digest_file.read_text().strip(),
            "size": [self.source.height, self.source.width],
            "versions": [__version__, torch.__version__, kind.here()],
            "code": sorted(digest_file(path) for path in code),
            "cpu": [torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()],
        }
        name = f"{kind.NAME}-{precision}-{digest_json(facts)[:16]}.ts"
        return self.run.engine / "builds" / name

    def measure(self, kind: Kind, built: Built, path: Path, precision: str) -> dict[str, Any]:
        """Accuracy and latency of the bundle as it lies on the disk, at every batch it is for.

        An engine that this machine can build but not run is judged by the same arithmetic in
        torch, and not timed.
        """
        if built.stand_in is not None and misfits(built.needs, kind.here()):
            run: Run = built.stand_in
            device, compared = torch.device("cpu"), "the same in torch"
        else:
            engine = load_bundle(path)
            run, device, compared = engine.run, engine.device, "the engine"
        rgb_u8, zoe_u16 = (tensor.to(device) for tensor in self.frames)
        eager = self.eager(device)
        accuracy = compare(run, eager, rgb_u8, zoe_u16, built.batches or (1, FRAMES))
        check_tolerance(accuracy, kind.NAME, precision)
        facts = {"compared": compared, **asdict(accuracy)}
        if compared == "the engine":
            times = time_all({"engine": run, "eager": eager}, rgb_u8[:1], zoe_u16[:1])
            facts |= {
                "latency_ms": times["engine"],
                "eager_ms": times["eager"],
                "height": zoe_u16.shape[1],
                "width": zoe_u16.shape[2],
            }
        return facts


def is_whole(path: Path) -> bool:
    """Whether a bundle is there and undamaged."""
    try:
        read_manifest(path)
    except UserError:
        return False
    return True


def make_manifest(run: RunDir, engine: str, precision: str) -> dict[str, Any]:
    """Where the bundle comes from, and what goes in and out."""
    provenance = run.read_json(run.provenance_file)
    results = run.read_json(run.results_file)
    return {
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
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }
