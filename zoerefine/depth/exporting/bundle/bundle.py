"""The engine bundle: one file with an engine and a manifest of its origin and its requirements.

Loading first verifies the file's digest, reads the manifest, compares the requirements with this
machine, and asks whether the user trusts a file that is code. Only then is anything of the engine
loaded. `containers` has the file formats.
"""

import json
import shlex
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import read_regular_file, replacing
from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.messages import say
from zoerefine.base.run_dir import ENGINE, RunDir
from zoerefine.depth.exporting import OUTPUTS
from zoerefine.depth.exporting.bundle import containers
from zoerefine.depth.exporting.bundle.manifest import check_fields, plain
from zoerefine.depth.exporting.bundle.trust import is_trusted, require_trust, trust
from zoerefine.depth.exporting.engine import Engine, arrays_by_tensors, tensors_by_arrays
from zoerefine.depth.exporting.engine_kinds import (
    ArrayForward,
    BuiltEngine,
    Bundle,
    Forward,
    check_requirements,
    engine_kind,
)

if TYPE_CHECKING:  # reading a manifest does not import torch
    import torch

SCHEMA = 6
MANIFEST = "manifest.json"
MODEL_CARD = "MODEL_CARD.md"
MAX_BYTES = 2**31  # of a bundle's file; those of this project have 1 to 200 MB
# Of a damaged file. zipfile has a RuntimeError for what it cannot read, such as encryption.
DAMAGED = (zipfile.BadZipFile, RuntimeError, ValueError, KeyError, TypeError, OSError, EOFError,
           struct.error)  # fmt: skip
MAKE_ONE = "make one with `zoerefine export RUN`"


def save_bundle(built: BuiltEngine, manifest: dict[str, Any], path: Path) -> None:
    """Write an engine and its manifest as one file, whole or not at all. The user trusts it.

    The manifest names the engine's kind, which decides the file's format.
    """
    complete = {
        "schema": SCHEMA,
        **manifest,
        "device": built.device,
        "requirements": built.requirements,
        "batches": list(built.batches),
        "outputs": dict(list(OUTPUTS.items())[: 1 + built.has_confidence]),
    }
    container = engine_kind(manifest["engine"]).CONTAINER
    digest = write(container, built.content, built.files, complete, path)
    if container.is_code:
        trust(digest, path)


def copy_bundle(
    source: Bundle, target: Path, facts: dict[str, Any], files: dict[str, bytes]
) -> None:
    """Write a bundle anew, with `facts` added to its manifest and `files` to its files.

    The user trusts the copy of a bundle that they trust.
    """
    manifest = source.manifest | facts
    digest = write(source.container, source.data, files, manifest, target)
    if source.container.is_code and is_trusted(manifest["digest"]):
        trust(digest, target)


def write(
    container: containers.Container,
    content: bytes,
    files: dict[str, bytes],
    manifest: dict[str, Any],
    path: Path,
) -> str:
    """Write a sealed file; returns the seal.

    It is the bundle's digest, and is not written into the manifest.
    """
    facts = {key: value for key, value in manifest.items() if key != "digest"}
    text = json.dumps(facts, indent=2).encode()
    data = containers.seal(container.pack(content, {**files, MANIFEST: text}))
    with replacing(path) as temporary:
        temporary.write_bytes(data)
    return data[-containers.LENGTH :].decode()


def read_manifest(path: str | Path) -> dict[str, Any]:
    """The manifest of an undamaged bundle, with its digest. Raises as `read_bundle` does."""
    return read_bundle(path).manifest


def read_bundle(path: str | Path) -> Bundle:
    """Read a bundle into memory and verify it. Loads none of the bundle's code.

    Raises `UserError` for a file that is missing, too large, truncated, altered, or not a bundle,
    and for a field of the manifest that is absent or of another type.
    """
    path = Path(path)
    try:
        data = read_regular_file(path, MAX_BYTES)
        container = containers.container_of(data)
        text = container.read_file(data, MANIFEST) if container else None
        if container is None or text is None:
            raise UserError(f"{path} is not an engine bundle, it has no manifest: {MAKE_ONE}")
        manifest: dict[str, Any] = json.loads(text)
        schema, digest = manifest["schema"], containers.intact_digest(data)
        rebuild = f"build it again with `{rebuild_command(manifest, path)}`"
    except FileNotFoundError:
        raise UserError(f"there is no engine bundle {path}: {MAKE_ONE}") from None
    except RecursionError:
        fault = "its manifest is nested too deeply"
        raise UserError(f"{path} is a damaged engine bundle: {fault}") from None
    except DAMAGED as error:
        fault = str(error) or "cut short"
        raise UserError(f"{path} is a damaged engine bundle ({fault}): export it again") from None
    if schema != SCHEMA:
        raise UserError(
            f"{path} has schema {plain(schema)}, this version of zoerefine reads {SCHEMA}: "
            f"{rebuild}"
        )
    if digest is None:
        raise UserError(f"{path} was altered after it was built: {rebuild}")
    return Bundle(path, data, container, check_fields(manifest, path) | {"digest": digest})


def rebuild_command(manifest: dict[str, Any], path: str | Path) -> str:
    """The command that builds the same kind of engine on the machine where it is typed."""
    run = Path(path).resolve().parent.parent
    name, engine, precision = (plain(manifest.get(key)) for key in ("run", "engine", "precision"))
    folder = str(run) if (run / "config.yaml").exists() else f"runs/.../{name}"
    return shlex.join(["zoerefine", "export", folder, "--engine", engine, "--precision", precision])


def bundle_of(path: str | Path) -> Path:
    """A bundle's file; for the folder of a run or its `engine/`, the bundle that was exported last.

    That one is named.

    Raises `UserError` for a folder without a bundle.
    """
    path = Path(path)
    if not path.is_dir():
        return path
    found = RunDir(path.parent if path.name == ENGINE else path).bundle
    if not found.exists():
        raise UserError(f"{path} has no engine bundle: make one with `zoerefine export {path}`")
    say(f"using {found}")
    return found


def load_bundle(path: str | Path, trust: bool = False, cuda_graphs: bool = True) -> Engine:
    """Verify a bundle, then load it on the device that it was built for.

    Args:
        trust: accept a bundle that is code, from elsewhere, and remember its digest.
        cuda_graphs: on a GPU, replay calls as CUDA graphs if the kind allows it.

    Raises:
        UserError: a damaged bundle, an unmet requirement, or code that the user does not trust.
    """
    bundle = read_bundle(path)
    manifest = bundle.manifest
    kind = engine_kind(manifest["engine"], path)
    check_requirements(kind, manifest["requirements"], path, rebuild_command(manifest, path))
    if kind.CONTAINER.is_code:
        require_trust(path, manifest, trust)
    loaded = kind.load(bundle)
    device = manifest["device"]
    if kind.TAKES_ARRAYS:
        on_arrays = cast(ArrayForward, loaded)
        forward = tensors_by_arrays(on_arrays)
    else:
        forward = in_own_types(cast(Forward, loaded))
        if device == "cuda":
            forward, device = of_this_gpu(forward, kind.GRAPHS if cuda_graphs else 0)
        on_arrays = arrays_by_tensors(forward, device)
    calls = usable_cores() if kind.PARALLEL_CALLS and device == "cpu" else 1
    return Engine(forward, on_arrays, manifest, manifest["digest"], device, calls)


def in_own_types(forward: Forward) -> Forward:
    """The same, whether or not the caller uses autocast."""
    from zoerefine.base.machine.device import without_autocast

    def in_own(rgb_u8: "torch.Tensor", zoe_u16: "torch.Tensor") -> "list[torch.Tensor]":
        with without_autocast():
            return forward(rgb_u8, zoe_u16)

    return in_own


def of_this_gpu(forward: Forward, graphs: int) -> "tuple[Forward, torch.device]":
    """A forward function with CUDA graphs for so many shapes, and the GPU that it was loaded on."""
    import torch

    from zoerefine.depth.exporting.graphed import GraphedForward

    device = torch.device("cuda", torch.cuda.current_device())
    forward = with_timed_convolutions(forward)
    return GraphedForward(forward, graphs, device) if graphs else forward, device


def with_timed_convolutions(forward: Forward) -> Forward:
    """The same; cuDNN times its algorithms in the first call of each size, unless bits must agree.

    A network has one size. The setting is the process's, so each call puts it back.
    """
    import torch

    def timed(rgb_u8: torch.Tensor, zoe_u16: torch.Tensor) -> list[torch.Tensor]:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
        try:
            return forward(rgb_u8, zoe_u16)
        finally:
            torch.backends.cudnn.benchmark = before

    return timed
