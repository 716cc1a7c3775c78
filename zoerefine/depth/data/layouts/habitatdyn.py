"""The layout of HabitatDyn: folders, names and encodings. The synthetic world has the same.

<root>/video_name_mapping.txt                                    clip id, tab, title
<root>/habitat_sim_DAVIS/JPEGImages/480p/<clip>/<frame>.jpg      RGB
<root>/habitat_sim_DAVIS/Annotations/480p_depth/<clip>/*.png     8 bits, 255 units for 10 m
<root>/habitat_sim_DAVIS/Annotations/480p_objectID/<clip>/*.png  ids of moving objects, 0 = none
<root>/zoe_depth_raw/<clip>/<frame>.png                          16 bits, metres = value / 256
"""

import re
from collections.abc import Mapping
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import picture_size
from zoerefine.depth.data.dataset import Clip, Dataset, Frame
from zoerefine.depth.data.depth_codec import HABITATDYN
from zoerefine.depth.data.frame_names import in_order
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.data.layouts.recordings import files_by_stem, read_text, without_picture

RGB = MARK = "habitat_sim_DAVIS/JPEGImages/480p"
DEPTH = "habitat_sim_DAVIS/Annotations/480p_depth"
OBJECTS = "habitat_sim_DAVIS/Annotations/480p_objectID"
ZOE = "zoe_depth_raw"
TITLES = "video_name_mapping.txt"
SYNTHETIC_MARK = "synthetic.json"

# Moving objects by their words in titles, without spaces, dashes and underscores.
CLASSES = {"people": "people", "person": "people", "toycar": "toy car", "robot": "robot",
           "dog": "dog", "cat": "cat"}  # fmt: skip
CLIPS_PER_SCENE = 54
SPEED_DIGITS = 6


def matches(root: Path) -> bool:
    return (root / RGB).is_dir()


def read(root: Path) -> Dataset:
    """Pair the files of all frames by name.

    Raises `UserError` for a clip folder whose name is not a number.
    """
    synthetic = (root / SYNTHETIC_MARK).exists()
    folders = sorted(path for path in (root / RGB).glob("[!.]*") if path.is_dir())
    frames, unpaired = [], []
    for folder in folders:
        found, strays = _clip_frames(root, folder.name)
        frames += found
        unpaired += strays
    return Dataset(
        root=root,
        label="synthetic world (HabitatDyn's layout, not its data)" if synthetic else "HabitatDyn",
        pseudo_label="synthetic pseudo depth" if synthetic else "ZoeDepth",
        depth_encoding=HABITATDYN,
        frames=in_order(frames),
        clips=_clips(root, [folder.name for folder in folders]),
        unpaired=tuple(unpaired),
    )


def pseudo_path(root: Path, frame: Frame) -> Path:
    return root / ZOE / frame.clip / f"{frame.name}.png"


def enter_pseudo(root: Path, paths: Mapping[Path, Path]) -> None:
    """Nothing to enter: files are found by their names."""


def scene_of(clip: str) -> str:
    """The scene of a clip: 54 clips to a scene, in order."""
    if not clip.isdecimal():
        raise UserError(f"clip folder {clip!r} should be a number, as HabitatDyn's are")
    return f"scene{int(clip) // CLIPS_PER_SCENE:02d}"


def _clip_frames(root: Path, clip: str) -> tuple[list[Frame], list[str]]:
    """All frames that have an RGB file, and a line for each other file that has none."""
    pictures = files_by_stem(root / RGB / clip, ".jpg")
    others = [files_by_stem(root / field / clip, ".png") for field in (DEPTH, OBJECTS, ZOE)]
    depth, objects, zoe = others
    scene, intrinsics = scene_of(clip), _intrinsics(next(iter(pictures.values()), None))
    frames = [
        Frame(clip, stem, scene, rgb, depth.get(stem), zoe.get(stem), objects.get(stem), intrinsics)
        for stem, rgb in pictures.items()
    ]
    return frames, without_picture(pictures, f"{RGB}/{clip}", *others)


def _intrinsics(picture: Path | None) -> Intrinsics | None:
    """Those of a horizontal field of view of 90 degrees at the size of a clip's first picture."""
    size = picture_size(picture) if picture else None
    if size is None:
        return None
    width, height = size
    return Intrinsics(width / 2, width / 2, (width - 1) / 2, (height - 1) / 2)


def _clips(root: Path, names: list[str]) -> tuple[Clip, ...]:
    """Titles from the name mapping; a title's last _field is the speed in m/s."""
    titles = {}
    if (root / TITLES).exists():
        for line in read_text(root / TITLES).splitlines():
            clip, _, title = line.partition("\t")
            titles[clip.strip()] = title.strip()
    clips = []
    for name in names:
        title = titles.get(name, "")
        speed = title.rpartition("_")[2]
        speed_m_s = int(speed) if speed.isdecimal() and len(speed) <= SPEED_DIGITS else 0
        clips.append(Clip(name, scene_of(name), title, speed_m_s, classes_of(title)))
    return tuple(clips)


def classes_of(title: str) -> tuple[str, ...]:
    """The classes of moving objects that a clip's title names."""
    letters = re.sub(r"[^a-z]", "", title.lower())
    return tuple(sorted({name for word, name in CLASSES.items() if word in letters}))
