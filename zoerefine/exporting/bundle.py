"""The engine bundle: one TorchScript file with a manifest of its origin and its requirements.

The file is a zip archive. Loading first reads `extra/manifest.json`, verifies the digest of all
other members, and compares the requirements with this machine. Only then is any code loaded.
"""

import hashlib
import io
import json
import shlex
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.errors import UserError
from zoerefine.exporting.engine_kinds import BuiltEngine, Forward, check_requirements, engine_kind
from zoerefine.exporting.engines.torchscript_engine import jit_warnings_ignored
from zoerefine.exporting.shipped_module import NO_CONFIDENCE, OUTPUTS
from zoerefine.files import digest_json, replacing
from zoerefine.processor_use import usable_cores

SCHEMA = 4
EXTRA = "extra"  # the folder in which TorchScript keeps additional files
MANIFEST = "manifest.json"
MODEL_CARD = "MODEL_CARD.md"
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # constant, so that the same content gives the same bytes


@dataclass(frozen=True)
class Engine:
    """A loaded bundle.

    Call it with NumPy arrays: RGB uint8 [B, H, W, 3] and pseudo depth uint16 [B, H, W] in
    metres * 256. It returns refined depth uint16 [B, H, W] in the same units. Any B, H and W.

    Attributes:
        forward: tensors on `device` to all outputs, for batches up to `max(manifest["batches"])`.
        parallel_calls: the number of calls at a time that uses the machine best.
    """

    forward: Forward
    manifest: dict[str, Any]
    digest: str
    device: torch.device
    parallel_calls: int

    @property
    def has_confidence(self) -> bool:
        """Whether `with_confidence` works."""
        return "spread" in self.manifest["outputs"]

    def __call__(self, rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> np.ndarray:
        refined: np.ndarray = self.refine(
            torch.from_numpy(rgb_u8), torch.from_numpy(zoe_u16)
        ).numpy()
        return refined

    def with_confidence(
        self, rgb_u8: np.ndarray, zoe_u16: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Refined depth and spread in log depth * 10000, both uint16 [B, H, W].

        Raises `UserError` if the refiner has no confidence.
        """
        self.require_confidence()
        depth, spread = self.outputs(torch.from_numpy(rgb_u8), torch.from_numpy(zoe_u16))
        return depth.cpu().numpy(), spread.cpu().numpy()

    def require_confidence(self) -> None:
        """Raises `UserError` if the refiner has no confidence."""
        if not self.has_confidence:
            raise UserError(f"this bundle has no confidence: {NO_CONFIDENCE}")

    def refine(self, rgb_u8: Tensor, zoe_u16: Tensor) -> Tensor:
        """Refined depth, for tensors on any device. The result is on the CPU.

        Raises `UserError` for other types or shapes.
        """
        return self.outputs(rgb_u8, zoe_u16)[0].cpu()

    def outputs(self, rgb_u8: Tensor, zoe_u16: Tensor) -> list[Tensor]:
        """All outputs on `device`, for tensors on any device. A GPU's work is only queued."""
        check_inputs(rgb_u8, zoe_u16)
        largest = max(self.manifest.get("batches") or [len(rgb_u8)])
        with torch.inference_mode():
            parts = [
                self.forward(rgb.to(self.device), zoe.to(self.device))
                for rgb, zoe in zip(rgb_u8.split(largest), zoe_u16.split(largest), strict=True)
            ]
        return parts[0] if len(parts) == 1 else [torch.cat(one) for one in zip(*parts, strict=True)]


def check_inputs(rgb_u8: Tensor, zoe_u16: Tensor) -> None:
    """Raises `UserError` for types or shapes that engines do not take."""
    valid = (
        rgb_u8.dtype == torch.uint8
        and zoe_u16.dtype == torch.uint16
        and rgb_u8.dim() == 4
        and tuple(rgb_u8.shape) == (*zoe_u16.shape, 3)
        and rgb_u8.numel() > 0
    )
    if not valid:
        raise UserError(
            "an engine takes RGB as uint8 [B, H, W, 3] and depth as uint16 [B, H, W] of the same "
            f"size (metres * 256), not {_described(rgb_u8)} and {_described(zoe_u16)}"
        )


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def save_bundle(built: BuiltEngine, manifest: dict[str, Any], path: Path) -> None:
    """Write an engine and its manifest as one file, whole or not at all."""
    buffer = io.BytesIO()
    with jit_warnings_ignored():
        torch.jit.save(built.module, buffer)
    complete = {
        "schema": SCHEMA,
        **manifest,
        "device": built.device,
        "requirements": built.requirements,
        "batches": list(built.batches),
        "outputs": dict(list(OUTPUTS.items())[: 1 + built.has_confidence]),
    }
    with zipfile.ZipFile(buffer, "a") as archive:
        for name, data in built.files.items():
            add_file(archive, name, data)
        add_manifest(archive, complete)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def copy_bundle(source: Path, target: Path, facts: dict[str, Any], files: dict[str, bytes]) -> None:
    """Copy a bundle, with `facts` added to its manifest and `files` added to its archive."""
    manifest = read_manifest(source) | facts
    with (
        replacing(target) as temporary,
        zipfile.ZipFile(source) as old,
        zipfile.ZipFile(temporary, "w") as new,
    ):
        for member in old.infolist():
            if not member.filename.endswith(f"/{EXTRA}/{MANIFEST}"):
                new.writestr(member, old.read(member))
        for name, data in files.items():
            add_file(new, name, data)
        add_manifest(new, manifest)


def add_manifest(archive: zipfile.ZipFile, manifest: dict[str, Any]) -> None:
    """Add the manifest, with the digest of all that the archive holds. It must come last."""
    complete = manifest | {"digest": content_digest(archive, manifest)}
    add_file(archive, MANIFEST, json.dumps(complete, indent=2).encode())


def add_file(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file where TorchScript keeps additional files."""
    root = archive.namelist()[0].split("/")[0]
    member = zipfile.ZipInfo(f"{root}/{EXTRA}/{name}", ZIP_DATE)
    member.external_attr = 0o644 << 16
    archive.writestr(member, data)


def content_digest(archive: zipfile.ZipFile, manifest: dict[str, Any]) -> str:
    """SHA-256 over names and bytes of all members, and over the manifest without its digest."""
    facts = {key: value for key, value in manifest.items() if key != "digest"}
    digest = hashlib.sha256(digest_json(facts).encode())
    for name in sorted(archive.namelist()):
        if not name.endswith(f"/{EXTRA}/{MANIFEST}"):
            digest.update(f"{name}\n".encode())
            digest.update(archive.read(name))
    return digest.hexdigest()


def read_manifest(path: str | Path) -> dict[str, Any]:
    """The manifest of an undamaged bundle. Loads none of the bundle's code.

    Raises `UserError` for a file that is missing, truncated, altered, or not a bundle.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = _member(archive, MANIFEST)
            if name is None:
                raise UserError(
                    f"{path} is not an engine bundle, it has no manifest: make one with "
                    "`zoerefine export RUN`"
                )
            manifest: dict[str, Any] = json.loads(archive.read(name))
            rebuild = f"build it again with `{rebuild_command(manifest, path)}`"
            if manifest["schema"] != SCHEMA:
                raise UserError(
                    f"{path} has schema {manifest['schema']}, this version of zoerefine reads "
                    f"{SCHEMA}: {rebuild}"
                )
            if manifest["digest"] != content_digest(archive, manifest):
                raise UserError(f"{path} was altered after it was built: {rebuild}")
    except FileNotFoundError:
        raise UserError(
            f"there is no engine bundle {path}: make one with `zoerefine export RUN`"
        ) from None
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(f"{path} is a damaged engine bundle ({error}): export it again") from None
    return manifest


def read_file(path: str | Path, name: str) -> bytes | None:
    """One of the additional files of a bundle, or None if it has no such file."""
    with zipfile.ZipFile(path) as archive:
        member = _member(archive, name)
        return archive.read(member) if member else None


def _member(archive: zipfile.ZipFile, name: str) -> str | None:
    return next((n for n in archive.namelist() if n.endswith(f"/{EXTRA}/{name}")), None)


def rebuild_command(manifest: dict[str, Any], path: str | Path) -> str:
    """The command that builds the same kind of engine on the machine where it is typed."""
    run = Path(path).resolve().parent.parent
    folder = str(run) if (run / "config.yaml").exists() else f"runs/.../{manifest.get('run')}"
    words = ["zoerefine", "export", folder, "--engine", str(manifest.get("engine"))]
    return shlex.join([*words, "--precision", str(manifest.get("precision"))])


def load_bundle(path: str | Path) -> Engine:
    """Verify a bundle, then load it on the device that it was built for.

    Raises `UserError`, in one line, for a damaged bundle or an unmet requirement.
    """
    manifest = read_manifest(path)
    kind = engine_kind(manifest["engine"], path)
    check_requirements(kind, manifest["requirements"], path, rebuild_command(manifest, path))
    device = torch.device(manifest["device"])
    try:
        with jit_warnings_ignored():
            module = torch.jit.load(str(path), map_location=device)
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1]
        raise UserError(
            f"{path}, built with torch {manifest['torch']}, cannot be loaded by torch "
            f"{torch.__version__}: {last}"
        ) from None

    def file_of_bundle(name: str) -> bytes:
        data = read_file(path, name)
        if data is None:
            raise UserError(f"{path} is a damaged engine bundle: it has no {name}")
        return data

    forward = kind.load(module.eval(), file_of_bundle, manifest["precision"])
    parallel = kind.PARALLEL_CALLS and device.type == "cpu"
    calls = usable_cores() if parallel else 1
    return Engine(forward, manifest, manifest["digest"], device, calls)
