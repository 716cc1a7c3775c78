"""Where pictures and their pseudo depth come from.

Pictures: a folder, a glob pattern, one picture, or a video. Pseudo depth: files, or a network,
whose output is kept in files.
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import (
    OrientationWarning,
    check_pixels,
    decode_rgb,
    file_bytes,
    picture_size,
    write_png,
)
from zoerefine.base.files.own_files import refuse_foreign
from zoerefine.base.messages import say, warn
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.depth_codec import SCALE, ZOEDEPTH
from zoerefine.depth.data.frame_names import number_order
from zoerefine.depth.data.intrinsics import Cameras, needs_intrinsics
from zoerefine.depth.data.layouts.readers import stated_intrinsics
from zoerefine.depth.data.networks import load_network
from zoerefine.depth.data.networks.pseudo_source import (
    DepthNetwork,
    PseudoSource,
    one_source,
    replace_source,
    require_picture,
    sources_of,
)
from zoerefine.depth.infer.results import INPUTS, file_fingerprint, has_provenance
from zoerefine.depth.infer.video_damage import check_video

MODEL = "zoerefine-depth-network"
PICTURE_SUFFIXES = {".jpg", ".jpeg", ".png"}
# Of pictures that are not read.
UNREAD_SUFFIXES = {".bmp", ".gif", ".heic", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
DEFAULT_FPS = 24.0  # HabitatDyn's frames per second, where a source does not state its own
MAX_FRAMES = 10**7  # at 24 frames a second nearly five days
# Containers may state a slightly wrong number of frames: a share of it may be missing.
MAX_MISSING_SHARE = 0.01


@dataclass(frozen=True)
class SourceFrame:
    """A picture to refine.

    Attributes:
        name: of its results: the path of its file in the source, without the suffix.
        fingerprint: changes when its file changes.
        pixels: returns their number without decoding the picture; 0 if it cannot be known.
        read: returns it as uint8 [H, W, 3], RGB; raises `UserError` if it cannot be read.
    """

    name: str
    fingerprint: str
    pixels: Callable[[], int]
    read: Callable[[], np.ndarray]


@dataclass(frozen=True)
class PictureFiles:
    """Picture files by name.

    Attributes:
        label: the source as the user gave it, for messages.
        files: by name, in order.
        root: the folder that is searched recursively; None for a pattern or one picture.
    """

    label: str
    files: dict[str, Path]
    root: Path | None
    fps: float = DEFAULT_FPS

    @property
    def names(self) -> Sequence[str]:
        """The names of all frames, in order."""
        return list(self.files)

    @property
    def folders(self) -> set[Path]:
        """The folders that files are read from."""
        return {path.parent for path in self.files.values()}

    def frames(self) -> Iterator[SourceFrame]:
        """Every picture, in order."""
        orientation = OrientationWarning()

        def pixels(path: Path) -> int:
            width, height = picture_size(path) or (0, 0)
            return width * height

        def read(path: Path) -> np.ndarray:
            data = file_bytes(path)
            orientation.note(path, data)
            return decode_rgb(data, str(path))

        for name, path in self.files.items():
            yield SourceFrame(
                name, file_fingerprint(path), partial(pixels, path), partial(read, path)
            )


@dataclass(frozen=True)
class VideoFile:
    """A video. Its frames are named by their number: 000000, 000001, ...

    Attributes:
        count: the number of its frames.
        damaged: the numbers of frames whose bytes are damaged.
        whole_count: the number of frames that the container states, where its end is missing.
    """

    label: str
    path: Path
    count: int
    fps: float
    damaged: frozenset[int] = frozenset()
    whole_count: int = 0
    root: Path | None = None

    @property
    def names(self) -> Sequence[str]:
        """The names of all frames, in order."""
        return [f"{number:06d}" for number in range(self.count)]

    @property
    def folders(self) -> set[Path]:
        """The folder that the video is read from."""
        return {self.path.parent}

    def frames(self) -> Iterator[SourceFrame]:
        """Every frame, in order.

        Raises `UserError` after the last frame of a video that is cut short.
        """
        capture, number = cv2.VideoCapture(str(self.path)), 0
        fingerprint = file_fingerprint(self.path)
        try:
            while True:
                more, bgr = capture.read()
                if not more:
                    break
                yield SourceFrame(
                    f"{number:06d}",
                    f"{fingerprint} {number}",
                    partial(int, bgr.size // 3),
                    partial(self.read, number, bgr),
                )
                number += 1
        finally:
            capture.release()
        if number < (whole := max(self.count, self.whole_count)):
            raise UserError(f"{self.path} ends after {number} of its {whole} frames: copy it again")

    def read(self, number: int, bgr: np.ndarray) -> np.ndarray:
        """A decoded frame in RGB. Raises `UserError` for a damaged one."""
        if number in self.damaged:
            raise UserError(f"{self.path} is damaged at this frame: copy it again")
        return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)


FrameSource = PictureFiles | VideoFile


def cameras_of(source: FrameSource) -> Cameras:
    """The cameras that the data set around pictures states for them; says which they are.

    None are known for a video, and where there is no data set, or it lacks that of a picture.
    """
    found = stated_intrinsics(source.files.values()) if isinstance(source, PictureFiles) else None
    if found is None or not isinstance(source, PictureFiles):
        return Cameras()
    root, by_file = found
    several = set(by_file.values())
    if len(several) == 1:
        [one] = several
        say(f"the camera is that of the data set {root}: {one}")
        return Cameras(one)
    say(f"the cameras of the pictures are those of the data set {root}: {len(several)}")
    return Cameras(own={name: by_file[path.resolve()] for name, path in source.files.items()})


def open_source(rgb: str) -> FrameSource:
    """Open a folder, a pattern such as 'clips/*/left*.jpg', a video or a picture.

    Raises `UserError` if there is nothing to read.
    """
    if not rgb:  # Path("") is the working folder
        raise UserError("--rgb is empty: give a folder, a video or a quoted pattern")
    path = Path(rgb)
    if path.is_dir():
        return PictureFiles(rgb, by_name(rgb, path, files_below(path)), root=path)
    if path.is_file():
        if not is_picture(path):
            return open_video(path)
        return PictureFiles(rgb, by_name(rgb, path.parent, [path]), root=None)
    if glob.has_magic(rgb):
        matches = [*map(Path, glob.glob(rgb, recursive=True))]
        if "[" in rgb and not matches:
            raise UserError(f"--rgb {rgb} matches no file: write [[] for a [ of a name")
        fixed = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
        return PictureFiles(rgb, by_name(rgb, fixed, matches), root=None)
    raise UserError(f"--rgb {rgb} does not exist: give a folder, a video or a quoted pattern")


def files_below(folder: Path, above: Sequence[str] = ()) -> Iterator[Path]:
    """The files in a folder and all folders below it, also behind links.

    A link to a folder `above` it is not followed. Raises `UserError` for a folder that may not be
    read.
    """
    place = os.path.realpath(folder)
    if place in above:
        return
    try:
        inner = [(path, path.is_dir()) for path in folder.iterdir()]
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from None
    for path, is_folder in inner:
        if is_folder:
            yield from files_below(path, (*above, place))
        else:
            yield path


def by_name(label: str, root: Path, paths: Iterable[Path]) -> dict[str, Path]:
    """The pictures among `paths` by name. Raises `UserError` for none, or two with one name."""
    files: dict[str, Path] = {}
    paths = list(paths)
    if others := sorted(path for path in paths if is_picture(path, UNREAD_SUFFIXES)):
        kinds = ", ".join(sorted({path.suffix.lower() for path in others}))
        warn(f"--rgb {label}: {len(others)} {kinds} pictures are not read, the first is "
             f"{others[0]}: convert them to png or jpg")  # fmt: skip
    for path in sorted(filter(is_picture, paths), key=in_order):
        name = str(path.relative_to(root).with_suffix(""))
        if ".." in Path(name).parts:
            raise UserError(
                f"--rgb {label} finds {path}, whose result would leave the folder of --out: give a "
                "pattern without .. after its first wildcard"
            )
        if name in files:
            raise UserError(
                f"{files[name]} and {path} differ only in their suffix, so their results would "
                "have the same name: move one of them to another folder"
            )
        files[name] = path
    if not files:
        raise UserError(f"--rgb {label} has no jpg or png pictures")
    return files


def in_order(path: Path) -> tuple[object, ...]:
    """A key that sorts files by folder, then by name, with numbers by their value."""
    return number_order(str(path.parent)), number_order(path.stem), path


def is_picture(path: Path, suffixes: Set[str] = PICTURE_SUFFIXES) -> bool:
    """Whether a file has the name of a picture. Ours begin with a dot while they are written."""
    return path.suffix.lower() in suffixes and not path.name.startswith(".")


def open_video(path: Path) -> VideoFile:
    """Raises `UserError` for a file that OpenCV cannot play, or with too many pixels a frame."""
    capture = cv2.VideoCapture(str(path))
    try:
        if not capture.isOpened() or not capture.grab():
            raise UserError(
                f"{path} is neither a video that OpenCV can play nor a jpg or png picture"
            )
        sides = cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT
        width, height = (int(capture.get(side)) for side in sides)
        check_pixels(width, height, str(path))
        stated = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
        fps = capture.get(cv2.CAP_PROP_FPS) or DEFAULT_FPS
        found = check_video(path, stated)
        # More than a damaged header may state; a whole file may have slightly fewer than stated.
        is_cut = found.has_errors and found.count / (1 - MAX_MISSING_SHARE) < stated <= MAX_FRAMES
        return VideoFile(str(path), path, found.count, fps, found.damaged, stated if is_cut else 0)
    finally:
        capture.release()


@dataclass(frozen=True)
class DepthFiles:
    """16-bit PNG files, metres * 256, in one folder, with the names of the pictures of a source.

    Attributes:
        of_any: also those that were made for other pictures.
    """

    folder: Path
    pictures: FrameSource
    of_any: bool = False

    def path(self, name: str) -> Path:
        """The file of a frame."""
        return self.folder / f"{name}.png"

    def fingerprint(self, name: str) -> str:
        """A text that changes when the pseudo depth of a frame changes."""
        return file_fingerprint(self.path(name))

    def read(self, name: str, inputs: str) -> np.ndarray | None:
        """uint16 [H, W], metres * 256. Raises `UserError` for a file that cannot be read, or that
        was made for another picture.
        """
        if isinstance(self.pictures, PictureFiles) and not self.of_any:
            require_picture(self.pictures.files[name], self.path(name))
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
        cameras: of the pictures, where the network needs them.
    """

    folder: Path
    name: str
    version: str
    network: DepthNetwork
    cameras: Cameras = field(default_factory=Cameras)

    def path(self, name: str) -> Path:
        """The file of a frame."""
        return self.folder / f"{name}.png"

    def fingerprint(self, name: str) -> str:
        """A text that changes when the pseudo depth of a frame changes."""
        return f"{self.version}\n{self.cameras.of(name)}" if self.cameras else self.version

    def provenance(self, inputs: str) -> dict[str, str]:
        """The text in a file."""
        return {MODEL: self.name, INPUTS: inputs} | SCALE

    def read(self, name: str, inputs: str) -> np.ndarray | None:
        """As `DepthFiles.read`; None if the network has not been run on these inputs."""
        path = self.path(name)
        return read_zoe(path) if has_provenance(path, self.provenance(inputs)) else None

    def predict(self, rgb: np.ndarray, names: Iterable[str]) -> np.ndarray:
        """Pictures uint8 [B, H, W, 3] to pseudo depth uint16 [B, H, W], metres * 256."""
        return ZOEDEPTH.encode(self.network.predict(rgb, *map(self.cameras.of, names)))

    def source(self, names: Iterable[str]) -> PseudoSource:
        """What predicts the depth."""
        return self.network.source

    def state_source(self, names: Iterable[str]) -> None:
        """Write pseudo.json beside the output of these frames. Raises as `replace_source`."""
        replace_source(self.folder, self.network.source, map(self.path, names))

    def write(self, name: str, inputs: str, zoe: np.ndarray) -> None:
        """Keep the network's output. Raises `UserError` if it cannot be written."""
        refuse_foreign([self.path(name)], "--out")
        write_png(self.path(name), zoe, self.provenance(inputs))


PseudoDepth = DepthFiles | NetworkDepth


def load_network_depth(name: str, folder: Path, cameras: Callable[[], Cameras]) -> NetworkDepth:
    """A depth network by its name; its output is kept in `folder`.

    Args:
        cameras: returns what is known of them; only called where the network needs them.

    Raises as `zoerefine.depth.data.networks.load_network`, and where the network needs intrinsics
    and there are none.
    """
    network = load_network(name)
    needed = cameras() if network.focal else Cameras()
    if network.focal and not needed:
        raise needs_intrinsics(network.source.name)
    return NetworkDepth(folder, name, f"{name}\n{network.source.digest}", network, needed)
