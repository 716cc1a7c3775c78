"""What an inference leaves in its folder, and how each file says what it was made from.

depth/NAME.png           refined depth, 16 bit, metres = value / 256
zoe_depth_raw/NAME.png   pseudo depth, the same, where ZoeDepth was run
colors/NAME.png          refined depth in colours, where asked for
points/NAME.ply          refined depth as points, where asked for
"""

import hashlib
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.errors import UserError
from zoerefine.image_files import png_text, write_bytes, write_png
from zoerefine.infer.points import Lens, ply
from zoerefine.pictures import depth_colors

BUNDLE, COMMIT, INPUTS = "zoerefine-bundle", "zoerefine-commit", "zoerefine-inputs"
SCALE = {"depth-scale": "metres = value / 256"}
KINDS = ("depth", "colors", "points")
HEAD = 8192  # bytes of a ply file in which its notes are

Notes = Mapping[str, str]


@dataclass(frozen=True)
class Results:
    """The folder of one inference.

    Attributes:
        bundle, commit: of the engine, noted in every file.
        farthest_m: the colours' far end; None: no colour pictures.
        lens: of the camera; None: no point clouds.
    """

    root: Path
    bundle: str
    commit: str
    farthest_m: float | None = None
    lens: Lens | None = None

    @property
    def zoe_depth_raw(self) -> Path:
        """For ZoeDepth's depth, named as HabitatDyn's folder for it."""
        return self.root / "zoe_depth_raw"

    def depth(self, name: str) -> Path:
        """Refined depth."""
        return self.root / "depth" / f"{name}.png"

    def files(self, name: str, inputs: str) -> dict[Path, Notes]:
        """Every file that a frame shall have, and what each says of itself."""
        made = {BUNDLE: self.bundle, COMMIT: self.commit, INPUTS: inputs}
        files: dict[Path, Notes] = {self.depth(name): made | SCALE}
        if self.farthest_m is not None:
            colors = {"colors": f"viridis, 0 to {self.farthest_m:g} m"}
            files[self.root / "colors" / f"{name}.png"] = made | colors
        if self.lens:
            files[self.root / "points" / f"{name}.ply"] = made | {"lens": str(self.lens)}
        return files

    def is_done(self, name: str, inputs: str) -> bool:
        """Whether all of a frame's files are there, of this bundle, these inputs and settings."""
        return all(has_notes(path, notes) for path, notes in self.files(name, inputs).items())

    def write(self, name: str, inputs: str, rgb: np.ndarray, depth_u16: np.ndarray) -> None:
        """Write a frame's files: uint8 [H, W, 3] RGB, and uint16 [H, W] refined depth."""
        for path, notes in self.files(name, inputs).items():
            if path.suffix == ".ply":
                assert self.lens
                camera = self.lens.camera(*depth_u16.shape)
                write_bytes(path, ply(depth_u16 * np.float32(ZOE_UNIT_M), rgb, camera, notes))
            elif path == self.depth(name):
                write_png(path, depth_u16, notes)
            else:
                assert self.farthest_m
                write_png(path, depth_colors(depth_u16 * ZOE_UNIT_M, self.farthest_m), notes)


def check_apart(out: Path, tree: Path | None, folders: Iterable[Path]) -> None:
    """Raises `UserError` where results would be taken for pictures, or written over them.

    Args:
        tree: a folder that is read with all folders in it.
        folders: all folders in which files are read.
    """
    if tree and out.resolve().is_relative_to(tree.resolve()):
        raise UserError(
            f"--out {out} lies in {tree}, whose pictures are read: results would be among them "
            "the next time; give a folder elsewhere"
        )
    kinds = [(out / kind).resolve() for kind in KINDS]
    for folder in folders:
        if any(folder.resolve().is_relative_to(kind) for kind in kinds):
            raise UserError(
                f"{folder} holds results of --out {out}: they would be written over while they "
                "are read; give another folder"
            )


def check_writable(folder: Path) -> None:
    """Raises `UserError` where nothing can be written to a folder; makes it where it is not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"nothing can be written to {folder}: {error.strerror}") from None


def has_notes(path: Path, notes: Notes) -> bool:
    """Whether a file of ours is there and says all of this; such files are whole."""
    if path.suffix == ".png":
        return notes.items() <= png_text(path).items()
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return all(value.encode() in head for value in notes.values())


def digest_of(*stamps: str) -> str:
    """A short digest of what something was made from."""
    return hashlib.blake2b(
        "\n".join(stamps).encode(errors="surrogateescape"), digest_size=8
    ).hexdigest()
