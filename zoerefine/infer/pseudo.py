"""Where pseudo depth comes from: files that are there, or ZoeDepth, which leaves such files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoerefine.data.decode import read_zoe
from zoerefine.data.depth_codec import ZOEDEPTH
from zoerefine.image_files import write_png
from zoerefine.infer.results import INPUTS, SCALE, has_notes
from zoerefine.infer.sources import file_stamp

if TYPE_CHECKING:
    from zoerefine.data.zoedepth import Model

MODEL = "zoerefine-zoedepth"


@dataclass(frozen=True)
class DepthFiles:
    """16-bit png files, metres * 256, of the pictures' names in one folder."""

    folder: Path

    def path(self, name: str) -> Path:
        """A frame's file."""
        return self.folder / f"{name}.png"

    def stamp(self, name: str) -> str:
        """Changes with what a frame's pseudo depth is."""
        return file_stamp(self.path(name))

    def read(self, name: str, inputs: str) -> np.ndarray | None:
        """uint16 [H, W], metres * 256. Raises `UserError` for a file that cannot be read."""
        return read_zoe(self.path(name))


@dataclass(frozen=True)
class ZoeDepth:
    """ZoeDepth run over the pictures; what it gives is kept in a folder and used again.

    Attributes:
        folder: of 16-bit png files, metres * 256.
        name: of the model, on the hub or a folder.
        version: changes with the model.
        model: from `zoerefine.data.zoedepth.load_model`.
    """

    folder: Path
    name: str
    version: str
    model: "Model"

    def path(self, name: str) -> Path:
        """A frame's file."""
        return self.folder / f"{name}.png"

    def stamp(self, name: str) -> str:
        """Changes with what a frame's pseudo depth is."""
        return self.version

    def notes(self, inputs: str) -> dict[str, str]:
        """What a file says of itself."""
        return {MODEL: self.name, INPUTS: inputs} | SCALE

    def read(self, name: str, inputs: str) -> np.ndarray | None:
        """As `DepthFiles` has it; None where the network has yet to be run."""
        path = self.path(name)
        return read_zoe(path) if has_notes(path, self.notes(inputs)) else None

    def predict(self, rgb: np.ndarray) -> np.ndarray:
        """Pictures uint8 [B, H, W, 3] to pseudo depth uint16 [B, H, W], metres * 256."""
        from zoerefine.data.zoedepth import predict

        return ZOEDEPTH.encode(predict(self.model, rgb))

    def write(self, name: str, inputs: str, zoe: np.ndarray) -> None:
        """Keep what the network gave. Raises `UserError` where that cannot be."""
        write_png(self.path(name), zoe, self.notes(inputs))


Pseudo = DepthFiles | ZoeDepth


def load_zoedepth(name: str, folder: Path) -> ZoeDepth:
    """ZoeDepth from the hub or a folder; `folder` is where what it gives is kept.

    Raises `UserError` where transformers is not installed, or there is no such model.
    """
    from zoerefine.data.zoedepth import load_model

    files = sorted(Path(name).iterdir()) if Path(name).is_dir() else []
    version = "\n".join([name, *map(file_stamp, files)])
    return ZoeDepth(folder, name, version, load_model(name))
