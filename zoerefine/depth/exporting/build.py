"""Builds a run's engines, one bundle per kind and precision, and keeps those within tolerance."""

import copy
import inspect
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoerefine import __version__
from zoerefine.base.config import load_config, training_size
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file, digest_json
from zoerefine.base.files.file_lock import lock
from zoerefine.base.machine.processor import describe_processor
from zoerefine.base.messages import say, warn
from zoerefine.base.run_dir import RunDir
from zoerefine.depth import points
from zoerefine.depth.data import area_mean, depth_codec
from zoerefine.depth.data.dataset import Dataset
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.networks.pseudo_source import source_from_json
from zoerefine.depth.data.split import read_split
from zoerefine.depth.exporting.bundle.bundle import load_bundle, read_manifest, save_bundle
from zoerefine.depth.exporting.bundle.trust import is_trusted
from zoerefine.depth.exporting.engine_kinds import (
    BuiltEngine,
    EngineKind,
    Forward,
    unmet_requirements,
)
from zoerefine.depth.exporting.shipped_module import ShippedModule, core_of
from zoerefine.depth.exporting.source import (
    FRAMES,
    ExportSource,
    calibration_batches,
    sample_frames,
)
from zoerefine.depth.exporting.verify import (
    call_on_first,
    check_tolerance,
    compare_with_eager,
    time_interleaved,
)
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.model.backbone import outside_files
from zoerefine.depth.training.checkpoint import load_refiner
from zoerefine.depth.training.job import changed_data, changed_network
from zoerefine.depth.training.verdict import warnings

# The code that decides what an engine computes, with three modules outside these.
CODE_FOLDERS = Path(__file__).parent, Path(inspect.getfile(RefinerNetwork)).parent
MEASURED_ENGINE, MEASURED_IN_TORCH = "the engine", "the same arithmetic in torch"


class EngineBuilder:
    """Builds the engines of a run's refiner into `engine/builds/`.

    Raises `UserError` if the run has no trained weights.
    """

    def __init__(self, run: RunDir) -> None:
        cfg = load_config(run.config_file)
        height, width = training_size(cfg)
        self.run, self.cfg = run, cfg
        self.folder = run.engine / "builds"
        self.root, self.farthest_m = cfg.DATA.ROOT, cfg.DATA.FARTHEST_M
        refiner = load_refiner(run)
        self.source = ExportSource(
            refiner,
            height,
            width,
            lambda: calibration_batches(run, self.dataset, height, width, refiner.takes_points),
        )

    @cached_property
    def dataset(self) -> Dataset:
        """All frames of the data, to compare on and to calibrate with."""
        return open_dataset(self.root)

    @cached_property
    def frames(self) -> tuple[Tensor, Tensor]:
        """Real frames to compare on: uint8 [N, H, W, C], uint16 [N, H, W].

        Warns where the data have changed since the training.
        """
        for data in changed_data(self.run, self.cfg, self.dataset):
            warn(f"since then other: {data}; engines are compared and calibrated with them")
        for network in changed_network(self.run, self.cfg):
            warn(f"since the training other: {network}; the bundle has them, with its weights")
        return sample_frames(self.dataset, self.source.refiner.takes_points)

    def eager(self, device: torch.device) -> ShippedModule:
        """The refiner as it was trained, float32, with the same pre- and post-processing."""
        core = core_of(copy.deepcopy(self.source.refiner))
        return self.source.shipped(core).eval().to(device)

    def bundle(self, kind: EngineKind, precision: str) -> Path:
        """The bundle of an engine that is within tolerance: built now, or kept from before.

        Raises:
            OutOfTolerance: it differs too much from the refiner.
            UserError: this machine cannot build it.
        """
        path = self.path_of(kind, precision)
        with lock(self.folder / ".lock"):  # a second export at the same time uses the first's
            if can_be_used(path, kind):
                say(f"using {path.name}, built before")
            else:
                self.build(kind, precision, path)
        return path

    def build(self, kind: EngineKind, precision: str, path: Path) -> None:
        """Build a bundle, check it, and remove outdated ones of its kind and precision."""
        say(f"building {kind.NAME} in {precision}")
        built = kind.build(self.source, precision)
        manifest = make_manifest(self.run, kind.NAME, precision, self.source.channels)
        unchecked = path.with_suffix(".unchecked")
        try:
            save_bundle(built, manifest, unchecked)
            measured = self.measure(kind, built, unchecked, precision)
        finally:
            unchecked.unlink(missing_ok=True)
        save_bundle(built, manifest | measured, path)
        for old in set(path.parent.glob(f"*{kind.NAME}-{precision}-*")) - {path}:
            old.unlink()

    @cached_property
    def code(self) -> list[str]:
        """The digests of the files that decide what an engine computes, sorted."""
        files = [path for folder in CODE_FOLDERS for path in folder.rglob("*.py")]
        files += map(Path, map(inspect.getfile, (area_mean, depth_codec, points)))
        return sorted(map(digest_file, [*files, *outside_files(self.cfg.MODEL.NAME)]))

    def path_of(self, kind: EngineKind, precision: str) -> Path:
        """Named by the digest of all that decides the bundle's content and its measurements."""
        facts = {
            "weights": self.run.weights_digest(),
            "size": [self.source.height, self.source.width],
            "versions": [__version__, torch.__version__, kind.machine_facts()],
            "code": self.code,
            "processor": [describe_processor(), torch.get_num_threads()],
        }
        name = f"{kind.NAME}-{precision}-{digest_json(facts)[:16]}"
        return self.folder / f"{name}{kind.CONTAINER.suffix}"

    def measure(
        self, kind: EngineKind, built: BuiltEngine, path: Path, precision: str
    ) -> dict[str, Any]:
        """Accuracy, at every batch size it is for, and latency of a bundle as saved to disk.

        If this machine can build the engine but not run it, the same arithmetic in torch is
        compared instead, and nothing is timed.
        """
        missing = unmet_requirements(built.requirements, kind.machine_facts())
        if built.torch_equivalent is not None and missing:
            forward: Forward = built.torch_equivalent
            device, compared = torch.device("cpu"), MEASURED_IN_TORCH
        else:
            engine = load_bundle(path)
            forward, device = engine.forward, torch.device(engine.device)
            compared = MEASURED_ENGINE
        rgb_u8, zoe_u16 = (tensor.to(device) for tensor in self.frames)
        eager = self.eager(device)
        batches = built.batches or (1, FRAMES)
        accuracy = compare_with_eager(forward, eager, rgb_u8, zoe_u16, batches)
        check_tolerance(accuracy, kind.NAME, precision, self.farthest_m)
        facts = {"compared": compared, **asdict(accuracy)}
        if compared == MEASURED_ENGINE:
            times = time_interleaved(
                {
                    "engine": call_on_first(forward, self.frames, device),
                    "eager": call_on_first(eager, self.frames, device),
                }
            )
            facts |= {
                "latency_ms": times["engine"],
                "eager_ms": times["eager"],
                "height": zoe_u16.shape[1],
                "width": zoe_u16.shape[2],
            }
        return facts


def can_be_used(path: Path, kind: EngineKind) -> bool:
    """Whether there is an undamaged bundle, and it is data or the user trusts it.

    One of unknown origin, in a run from elsewhere, is built again.
    """
    try:
        digest = read_manifest(path)["digest"]
    except UserError:
        return False
    return not kind.CONTAINER.is_code or is_trusted(digest)


def make_manifest(run: RunDir, engine: str, precision: str, channels: int) -> dict[str, Any]:
    """Where a bundle comes from, and what its inputs are."""
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
        "weights": run.weights_digest(),
        "data": results["data"],
        "pseudo_label": results["pseudo_label"],
        "pseudo": source_from_json(results.get("pseudo")).as_json(),
        "farthest_m": load_config(run.config_file).DATA.FARTHEST_M,
        **{name: results[name] for name in ("pseudo_far_m",) if name in results},
        **training_scenes(run, provenance),
        "metrics": results.get("test", {}).get("refined", {}),
        "pseudo_metrics": results.get("test", {}).get("pseudo", {}),
        "warnings": warnings(results),
        "inputs": {
            "rgb": f"uint8 [B, H, W, {channels}]",
            "zoe": "uint16 [B, H, W], metres * 256",
        },
        "takes_points": channels > points.RGB,
        "torch": torch.__version__.split("+")[0],
        "processor": describe_processor(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }


def training_scenes(run: RunDir, provenance: dict[str, Any]) -> dict[str, Any]:
    """The digest of each scene's pictures that training used, see `picture_digests`; also those
    of validation, which chose the weights, and those of the weights that it started from. Nothing
    for a run of an earlier version."""
    if not (pictures := provenance.get("pictures")):
        return {}
    split = read_split(run.split_file)
    scenes = {scene: pictures.get(scene, "") for scene in sorted({*split.train, *split.val})}
    earlier = provenance.get("started_from", {}).get("scenes") or {}
    started = any(fact in provenance for fact in ("started_from", "pretrained"))
    return {
        "training_scenes": {name: digest for digest, name in earlier.items()} | scenes,
        "started_from_others": started,
    }
