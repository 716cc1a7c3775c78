"""Where pseudo depth comes from: from files, or from ZoeDepth, whose output is kept in files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoerefine.data.decode import read_zoe
from zoerefine.data.depth_codec import ZOEDEPTH
from zoerefine.image_files import write_png
from zoerefine.infer.results import INPUTS, SCALE, has_provenance
from zoerefine.infer.sources import file_fingerprint
from zoerefine.own_files import refuse_foreign

if TYPE_CHECKING:
    from zoerefine.data.zoedepth import Model

MODEL = "zoerefine-zoedepth"


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


@dataclass(frozen=True)
class ZoeDepth:
    """ZoeDepth, run on the pictures. Its output is kept in a folder and used again.

    Attributes:
        folder: for 16-bit PNG files, metres * 256.
        name: of the model: a folder, or a name on the Hugging Face hub.
        version: changes when the model changes.
        model: from `zoerefine.data.zoedepth.load_model`.
    """

    folder: Path
    name: str
    version: str
    model: "Model"

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
        from zoerefine.data.zoedepth import predict

        return ZOEDEPTH.encode(predict(self.model, rgb))

    def write(self, name: str, inputs: str, zoe: np.ndarray) -> None:
        """Keep the network's output. Raises `UserError` if it cannot be written."""
        refuse_foreign([self.path(name)], "--out")
        write_png(self.path(name), zoe, self.provenance(inputs))


PseudoDepth = DepthFiles | ZoeDepth


def load_zoedepth(name: str, folder: Path) -> ZoeDepth:
    """ZoeDepth from the hub or a folder; its output is kept in `folder`.

    Raises `UserError` if transformers is not installed, or there is no such model.
    """
    from zoerefine.data.zoedepth import load_model

    files = sorted(Path(name).iterdir()) if Path(name).is_dir() else []
    version = "\n".join([name, *map(file_fingerprint, files)])
    return ZoeDepth(folder, name, version, load_model(name))
