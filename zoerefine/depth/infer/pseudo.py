"""Where pseudo depth comes from: from files, or from a network, whose output is kept in files."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import refuse_foreign
from zoerefine.base.files.images import write_png
from zoerefine.base.progress import say
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.dataset import Intrinsics
from zoerefine.depth.data.depth_codec import SCALE, ZOEDEPTH
from zoerefine.depth.data.networks import load_network
from zoerefine.depth.data.networks.source import (
    DepthNetwork,
    PseudoSource,
    needs_intrinsics,
    one_source,
    source_from_json,
    sources_of,
    write_source,
)
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.infer.results import INPUTS, has_provenance
from zoerefine.depth.infer.sources import file_fingerprint

MODEL = "zoerefine-depth-network"


@dataclass(frozen=True)
class DepthFiles:
    """16-bit PNG files, metres * 256, in one folder, with the names of the pictures."""

    folder: Path

    def path(self, name: str) -> Path:
        """The file of a frame."""
        return self.folder / f"{name}.png"

    def fingerprint(self, name: str) -> str:
        """A text that changes when the pseudo depth of a frame changes."""
        return file_fingerprint(self.path(name))

    def read(self, name: str, inputs: str) -> np.ndarray | None:
        """uint16 [H, W], metres * 256. Raises `UserError` for a file that cannot be read."""
        return read_zoe(self.path(name))

    def source(self, names: Iterable[str]) -> PseudoSource:
        """What predicted the depth of these frames. Raises `UserError` for two networks."""
        return one_source(sources_of(map(self.path, names)), str(self.folder))


@dataclass(frozen=True)
class NetworkDepth:
    """A depth network, run on the pictures. Its output is kept in a folder and used again.

    Attributes:
        folder: for 16-bit PNG files, metres * 256.
        name: of the network: a folder, a name on the Hugging Face hub, or an ONNX file.
        version: changes when the network changes.
        intrinsics: of the camera, where the network needs them.
    """

    folder: Path
    name: str
    version: str
    network: DepthNetwork
    intrinsics: Intrinsics | None = None

    def path(self, name: str) -> Path:
        """The file of a frame."""
        return self.folder / f"{name}.png"

    def fingerprint(self, name: str) -> str:
        """A text that changes when the pseudo depth of a frame changes."""
        return self.version

    def provenance(self, inputs: str) -> dict[str, str]:
        """The text in a file."""
        return {MODEL: self.name, INPUTS: inputs} | SCALE

    def read(self, name: str, inputs: str) -> np.ndarray | None:
        """As `DepthFiles.read`; None if the network has not been run on these inputs."""
        path = self.path(name)
        return read_zoe(path) if has_provenance(path, self.provenance(inputs)) else None

    def predict(self, rgb: np.ndarray) -> np.ndarray:
        """Pictures uint8 [B, H, W, 3] to pseudo depth uint16 [B, H, W], metres * 256."""
        focal_px = self.intrinsics.focal_px if self.intrinsics else None
        return ZOEDEPTH.encode(self.network.predict(rgb, focal_px))

    def source(self, names: Iterable[str]) -> PseudoSource:
        """What predicts the depth."""
        return self.network.source

    def state_source(self) -> None:
        """Write pseudo.json beside the output. Raises `UserError` where that is not possible."""
        write_source(self.folder, self.network.source)

    def write(self, name: str, inputs: str, zoe: np.ndarray) -> None:
        """Keep the network's output. Raises `UserError` if it cannot be written."""
        refuse_foreign([self.path(name)], "--out")
        write_png(self.path(name), zoe, self.provenance(inputs))


PseudoDepth = DepthFiles | NetworkDepth


def load_network_depth(
    name: str, folder: Path, camera: Callable[[], Intrinsics | None]
) -> NetworkDepth:
    """A depth network by its name; its output is kept in `folder`.

    Args:
        camera: returns the intrinsics, if they are known; only asked where the network needs them.

    Raises as `zoerefine.depth.data.networks.load_network`, and where the network needs intrinsics
    and there are none.
    """
    network = load_network(name)
    version, intrinsics = f"{name}\n{network.source.digest}", None
    if network.focal:
        intrinsics = camera()
        if intrinsics is None:
            raise needs_intrinsics(network.source.name)
        version += f"\n{intrinsics}"
    return NetworkDepth(folder, name, version, network, intrinsics)


def check_source(bundle: Path, engine: Engine, given: PseudoSource) -> None:
    """Say where it is unknown whether a bundle was trained on pseudo depth of this network.

    Raises `UserError` where it was trained on that of another one.
    """
    trained = source_from_json(engine.manifest.get("pseudo"))
    if not (trained.is_known and given.is_known):
        say(f"{bundle} was trained on pseudo depth of: {trained}; it now refines that of: {given}")
    elif not given.is_like(trained):
        raise UserError(
            f"{bundle} was trained on pseudo depth of {trained} and would refine that of {given}, "
            "which has other errors: use the same network, or accept it with --any-pseudo"
        )
