"""A folder of one recording: rgb/<n>.jpg, depth/<n>.png in millimetres, pseudo/<n>.png."""

from collections.abc import Mapping
from pathlib import Path

from zoerefine.depth.data.dataset import Clip, Dataset, Frame
from zoerefine.depth.data.depth_codec import MILLIMETRES

MARK = "numbered.txt"


def matches(root: Path) -> bool:
    """Whether a folder has this layout."""
    return (root / MARK).is_file()


def read(root: Path) -> Dataset:
    """Each recording is a clip and a scene of its own."""
    frames = tuple(
        Frame(
            clip=clip.name,
            name=rgb.stem,
            scene=clip.name,
            rgb=rgb,
            depth=clip / "depth" / f"{rgb.stem}.png",
            zoe=clip / "pseudo" / f"{rgb.stem}.png",
            objects=None,
        )
        for clip in sorted(path for path in root.iterdir() if path.is_dir())
        for rgb in sorted((clip / "rgb").glob("*.jpg"))
    )
    clips = tuple(Clip(name, name) for name in sorted({frame.clip for frame in frames}))
    return Dataset(root, "numbered recordings", "pseudo depth", MILLIMETRES, frames, clips)


def pseudo_path(root: Path, frame: Frame) -> Path:
    """Where the pseudo depth of a frame belongs."""
    return root / frame.clip / "pseudo" / f"{frame.name}.png"


def enter_pseudo(root: Path, paths: Mapping[Path, Path]) -> None:
    """Nothing: files are found by name."""
