"""The engine bundle: one TorchScript file that says where it came from and what it needs.

The file is a zip archive; `extra/manifest.json` in it is read, and the digest of everything else
checked, before any of its code is loaded.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoerefine.errors import UserError
from zoerefine.export.tensorrt import import_runtime
from zoerefine.export.torchscript import quiet
from zoerefine.files import replacing

SCHEMA = 1
MANIFEST = "extra/manifest.json"


@dataclass(frozen=True)
class Engine:
    """A loaded bundle.

    Call it with uint8 [B, H, W, 3] RGB and uint16 [B, H, W] pseudo depth (metres * 256), NumPy
    arrays; it returns uint16 [B, H, W] refined depth in the same units. Any H and W.
    """

    module: torch.jit.ScriptModule
    manifest: dict[str, Any]
    digest: str
    device: torch.device

    def __call__(self, rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            rgb, zoe = (torch.from_numpy(a).to(self.device) for a in (rgb_u8, zoe_u16))
            refined: np.ndarray = self.module(rgb, zoe).cpu().numpy()
        return refined


def save_bundle(module: torch.jit.ScriptModule, manifest: dict[str, Any], path: Path) -> None:
    """Write the module and its manifest as one file, whole or not at all."""
    buffer = io.BytesIO()
    with quiet():
        torch.jit.save(module, buffer)
    with zipfile.ZipFile(buffer, "a") as archive:
        root = archive.namelist()[0].split("/")[0]
        complete = {"schema": SCHEMA, **manifest, "digest": content_digest(archive)}
        archive.writestr(f"{root}/{MANIFEST}", json.dumps(complete, indent=2))
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def content_digest(archive: zipfile.ZipFile) -> str:
    """SHA-256 over all members but the manifest: names and bytes."""
    digest = hashlib.sha256()
    for name in sorted(archive.namelist()):
        if not name.endswith(f"/{MANIFEST}"):
            digest.update(f"{name}\n".encode())
            digest.update(archive.read(name))
    return digest.hexdigest()


def read_manifest(path: str | Path) -> dict[str, Any]:
    """The manifest of a bundle that is whole. Loads none of its code.

    Raises `UserError` for a file that is missing, truncated, altered, or no bundle.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((n for n in archive.namelist() if n.endswith(f"/{MANIFEST}")), None)
            if name is None:
                raise UserError(f"{path} is no engine bundle: it has no manifest; use export.py")
            manifest: dict[str, Any] = json.loads(archive.read(name))
            if manifest["digest"] != content_digest(archive):
                raise UserError(f"{path} was altered after it was made: export it again")
    except FileNotFoundError:
        raise UserError(f"no engine bundle {path}: make one with export.py RUN") from None
    except (zipfile.BadZipFile, ValueError, KeyError, OSError) as error:
        raise UserError(f"{path} is no whole engine bundle ({error}): export it again") from None
    return manifest


def load_bundle(path: str | Path) -> Engine:
    """Check a bundle, then load it where it is meant to run.

    Raises `UserError`, in one line, for what does not fit this machine.
    """
    manifest = read_manifest(path)
    check_fits(manifest, path)
    device = torch.device("cuda" if manifest["engine"] == "tensorrt" else "cpu")
    try:
        with quiet():
            module = torch.jit.load(str(path), map_location=device)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{path} cannot be loaded by torch {torch.__version__}: {first}") from None
    return Engine(module.eval(), manifest, manifest["digest"], device)


def check_fits(manifest: dict[str, Any], path: str | Path) -> None:
    """Raises `UserError` where the bundle was built for something else than what is here."""
    if manifest["schema"] != SCHEMA:
        raise UserError(f"{path} has schema {manifest['schema']}, this version reads {SCHEMA}")
    here = torch.__version__.split("+")[0]
    again = "export it again here: platform/export.py RUN"
    if manifest["engine"] != "tensorrt":
        return
    import_runtime()
    if manifest["torch"] != here:
        raise UserError(f"{path} was built with torch {manifest['torch']}, here is {here}: {again}")
    capability = list(torch.cuda.get_device_capability())
    if manifest["gpu_capability"] != capability:
        raise UserError(
            f"{path} was built for a GPU of capability {manifest['gpu_capability']} "
            f"({manifest['gpu']}), here is {capability}: {again}"
        )
