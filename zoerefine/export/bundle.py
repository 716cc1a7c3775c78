"""The engine bundle: one TorchScript file that says where it came from and what it needs.

The file is a zip archive; `extra/manifest.json` in it is read, and the digest of everything else
checked, before any of its code is loaded.
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
from zoerefine.export.engine_kinds import Built, Run, check_fits, kind_of
from zoerefine.export.engines.torchscript_engine import quiet
from zoerefine.files import digest_json, replacing

SCHEMA = 2
EXTRA = "extra"  # where TorchScript keeps what is not its own
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Engine:
    """A loaded bundle.

    Call it with uint8 [B, H, W, 3] RGB and uint16 [B, H, W] pseudo depth (metres * 256), NumPy
    arrays; it returns uint16 [B, H, W] refined depth in the same units. Any H and W. `run` does
    the same with tensors on `device`, up to `manifest["batches"]`.
    """

    run: Run
    manifest: dict[str, Any]
    digest: str
    device: torch.device

    def __call__(self, rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> np.ndarray:
        refined: np.ndarray = self.refine(
            torch.from_numpy(rgb_u8), torch.from_numpy(zoe_u16)
        ).numpy()
        return refined

    def refine(self, rgb_u8: Tensor, zoe_u16: Tensor) -> Tensor:
        """The same with tensors on any device; returns one on the CPU.

        Raises `UserError` for other types or shapes than those.
        """
        check_inputs(rgb_u8, zoe_u16)
        largest = max(self.manifest.get("batches") or [len(rgb_u8)])
        with torch.inference_mode():
            parts = [
                self.run(rgb.to(self.device), zoe.to(self.device)).cpu()
                for rgb, zoe in zip(rgb_u8.split(largest), zoe_u16.split(largest), strict=True)
            ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def check_inputs(rgb_u8: Tensor, zoe_u16: Tensor) -> None:
    """Raises `UserError` where a batch is not what an engine takes."""
    right = (
        rgb_u8.dtype == torch.uint8
        and zoe_u16.dtype == torch.uint16
        and rgb_u8.dim() == 4
        and tuple(rgb_u8.shape) == (*zoe_u16.shape, 3)
        and rgb_u8.numel() > 0
    )
    if not right:
        raise UserError(
            "an engine takes RGB as uint8 [B, H, W, 3] and depth as uint16 [B, H, W] of the same "
            f"size (metres * 256), not {_described(rgb_u8)} and {_described(zoe_u16)}"
        )


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def save_bundle(built: Built, manifest: dict[str, Any], path: Path) -> None:
    """Write an engine and its manifest as one file, whole or not at all."""
    buffer = io.BytesIO()
    with quiet():
        torch.jit.save(built.module, buffer)
    with zipfile.ZipFile(buffer, "a") as archive:
        root = archive.namelist()[0].split("/")[0]
        for name, data in built.files.items():
            archive.writestr(f"{root}/{EXTRA}/{name}", data)
        complete = {
            "schema": SCHEMA,
            **manifest,
            "device": built.device,
            "needs": built.needs,
            "batches": list(built.batches),
        }
        complete["digest"] = content_digest(archive, complete)
        archive.writestr(f"{root}/{EXTRA}/{MANIFEST}", json.dumps(complete, indent=2))
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def content_digest(archive: zipfile.ZipFile, manifest: dict[str, Any]) -> str:
    """SHA-256 over all members, names and bytes, and over what the manifest says besides it."""
    facts = {key: value for key, value in manifest.items() if key != "digest"}
    digest = hashlib.sha256(digest_json(facts).encode())
    for name in sorted(archive.namelist()):
        if not name.endswith(f"/{EXTRA}/{MANIFEST}"):
            digest.update(f"{name}\n".encode())
            digest.update(archive.read(name))
    return digest.hexdigest()


def read_manifest(path: str | Path) -> dict[str, Any]:
    """The manifest of a bundle that is whole. Loads none of its code.

    Raises `UserError` for a file that is missing, truncated, altered, or no bundle.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((n for n in archive.namelist() if n.endswith(f"/{EXTRA}/{MANIFEST}")), None)
            if name is None:
                raise UserError(f"{path} is no engine bundle: it has no manifest; use export.py")
            manifest: dict[str, Any] = json.loads(archive.read(name))
            if manifest["schema"] != SCHEMA:
                raise UserError(
                    f"{path} has schema {manifest['schema']}, this version of zoerefine reads "
                    f"{SCHEMA}: make it again with `{again(manifest, path)}`"
                )
            if manifest["digest"] != content_digest(archive, manifest):
                raise UserError(
                    f"{path} was altered after it was made: make it again with "
                    f"`{again(manifest, path)}`"
                )
    except FileNotFoundError:
        raise UserError(f"no engine bundle {path}: make one with export.py RUN") from None
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(f"{path} is no whole engine bundle ({error}): export it again") from None
    return manifest


def again(manifest: dict[str, Any], path: str | Path) -> str:
    """The command that builds the same engine for the machine at hand."""
    run = Path(path).resolve().parent.parent
    folder = str(run) if (run / "config.yaml").exists() else f"runs/.../{manifest.get('run')}"
    words = ["python", "platform/export.py", folder, "--engine", str(manifest.get("engine"))]
    return shlex.join([*words, "--precision", str(manifest.get("precision"))])


def load_bundle(path: str | Path) -> Engine:
    """Check a bundle, then load it where it is meant to run.

    Raises `UserError`, in one line, for what does not fit this machine.
    """
    manifest = read_manifest(path)
    kind = kind_of(manifest["engine"])
    check_fits(kind.NAME, manifest["needs"], kind.here(), path, again(manifest, path))
    device = torch.device(manifest["device"])
    try:
        with quiet():
            module = torch.jit.load(str(path), map_location=device)
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1]
        raise UserError(
            f"{path}, built with torch {manifest['torch']}, cannot be loaded by torch "
            f"{torch.__version__}: {last}"
        ) from None

    def read(name: str) -> bytes:
        with zipfile.ZipFile(path) as archive:
            member = next(n for n in archive.namelist() if n.endswith(f"/{EXTRA}/{name}"))
            return archive.read(member)

    run = kind.attach(module.eval(), read, manifest["precision"])
    return Engine(run, manifest, manifest["digest"], device)
