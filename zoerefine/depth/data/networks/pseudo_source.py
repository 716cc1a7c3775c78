"""What predicts pseudo depth: its name and digest, in a file `pseudo.json` beside the depth.

The file states the source of all pseudo depth in its folder and below, up to the next pseudo.json.
Depth without one is of unknown origin.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_json, read_regular_file, write_json
from zoerefine.base.files.own_files import JSON_MARK
from zoerefine.base.messages import say, visible
from zoerefine.depth.data import ZOEDEPTH_MODEL
from zoerefine.depth.data.intrinsics import FocalTerm, Intrinsics, needs_intrinsics

FILE = "pseudo.json"
PICTURE = "zoerefine-picture"  # in the text of a file of ours: SHA-256 of the picture's file
MOST_BYTES = 2**16  # of the file
MOST_CHARACTERS = 200  # of a name or a digest


@dataclass(frozen=True)
class PseudoSource:
    """What predicted pseudo depth.

    Attributes:
        name: of the network, for people; empty where it is unknown.
        digest: SHA-256 of all that decides its depth: weights, config and processing. Empty where
            it is not known; then names are compared.
    """

    name: str = ""
    digest: str = ""

    @property
    def is_known(self) -> bool:
        return self != UNKNOWN

    def is_like(self, other: "PseudoSource") -> bool:
        """Whether both are the same network."""
        if self.digest and other.digest:
            return self.digest == other.digest
        return self.name == other.name

    def as_json(self) -> dict[str, str]:
        """For headers, results and manifests; `source_from_json` reads it."""
        return asdict(self)

    def __str__(self) -> str:
        if not self.is_known:
            return UNKNOWN_NAME
        return f"{self.name} ({self.digest[:8]})" if self.digest else self.name

    @property
    def now(self) -> str:
        """For a message about depth that is given now: also why its source is unknown."""
        return str(self) if self.is_known else f"{UNKNOWN_NAME} (no {FILE} states it)"


UNKNOWN_NAME = "unknown"
UNKNOWN = PseudoSource()
SYNTHETIC = PseudoSource("synthetic", digest_json(["synthetic errors", 1]))


def label_of(source: PseudoSource, otherwise: str) -> str:
    """What pseudo depth is called: by its network, or as its layout says."""
    return source.name if source.is_known and source != SYNTHETIC else otherwise


def source_from_json(value: Any) -> PseudoSource:
    """A source as `as_json` gives it; unknown for anything else, as in older files."""
    if not isinstance(value, dict):
        return UNKNOWN
    name, digest = value.get("name", ""), value.get("digest", "")
    if not isinstance(name, str) or not isinstance(digest, str):
        return UNKNOWN
    return (
        UNKNOWN
        if name == UNKNOWN_NAME
        else PseudoSource(visible(name.strip()), visible(digest.strip()))
    )


def write_source(folder: Path, source: PseudoSource) -> None:
    """State the source of the pseudo depth in a folder. Raises `UserError` where it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, JSON_MARK | source.as_json())
    except OSError as error:
        raise UserError(f"{folder / FILE} cannot be written: {error.strerror}") from None


def replace_source(folder: Path, source: PseudoSource, files: Iterable[Path]) -> None:
    """State the source of depth that will be written to a folder.

    Where another source is stated, removes `files`, which are made again.

    Raises `UserError` where the folder has other files of another source.
    """
    stated = read_source(folder / FILE)
    if stated and not stated.is_like(source):
        files = set(files)
        if others := sorted(set(folder.rglob("*.png")) - files):
            raise UserError(
                f"{folder} has depth of {stated}, such as {others[0]}, and this command would add "
                f"that of {source}: give another folder"
            )
        for path in files:
            path.unlink(missing_ok=True)
    write_source(folder, source)


def read_source(path: Path) -> PseudoSource | None:
    """What one pseudo.json states; None where there is none.

    Raises `UserError` for a file that states no name.
    """
    try:
        found = json.loads(read_regular_file(path, MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no JSON ({error})") from None
    source = source_from_json(found)
    if max(len(source.name), len(source.digest)) > MOST_CHARACTERS:
        raise UserError(f"{path}: name and digest have at most {MOST_CHARACTERS} characters")
    if not source.name:
        raise UserError(
            f'{path} states no network: it should be {{"name": "...", "digest": "..."}}; the '
            "digest may be empty"
        )
    return source


def sources_of(files: Iterable[Path]) -> set[PseudoSource]:
    """The sources of some files of pseudo depth. Raises as `read_source`."""
    return {source_of(Path(folder)) for folder in {os.path.dirname(path) for path in files}}


def source_of(folder: Path) -> PseudoSource:
    """By the folder's own pseudo.json, else by that of the nearest folder above.

    Raises as `read_source`.
    """
    folder = Path(os.path.realpath(folder))
    stated = (read_source(one / FILE) for one in (folder, *folder.parents))
    return next((source for source in stated if source is not None), UNKNOWN)


def one_source(sources: set[PseudoSource], what: str) -> PseudoSource:
    """The only source; unknown if one of them is.

    Raises `UserError` where there are two known ones.

    Args:
        what: where they are from, for the message.
    """
    known = sorted(sources - {UNKNOWN}, key=str)
    for other in known[1:]:
        if not other.is_like(known[0]):
            raise UserError(
                f"{what} mixes pseudo depth of {known[0]} and of {other}: a refiner learns the "
                "errors of one network; make all of it with one, or select scenes of one"
            )
    if known and UNKNOWN in sources:
        say(f"{what}: a part of the pseudo depth is of {known[0]}, the rest of unknown origin")
        return UNKNOWN
    return known[0] if known else UNKNOWN


@dataclass(frozen=True)
class DepthNetwork:
    """A network that predicts metric depth.

    Attributes:
        source: its name and digest.
        run: pictures of one size, uint8 [B, H, W, 3] RGB, to depth, float32 [B, H, W], metres
            without the focal term.
        focal: if metres depend on the camera's focal length.
    """

    source: PseudoSource
    run: Callable[[np.ndarray], np.ndarray]
    focal: FocalTerm | None = None

    def predict(self, pictures: np.ndarray, *cameras: Intrinsics | None) -> np.ndarray:
        """Depth, float32 [B, H, W] metres, of pictures of one size, uint8 [B, H, W, 3] RGB.

        Args:
            cameras: of each picture, or one of all. Raises `UserError` where a focal length is
                needed, and the camera is missing or of another size.
        """
        if self.focal is None:
            return self.run(pictures)
        if not cameras or None in cameras:
            raise needs_intrinsics(self.source.name)
        factors = [self.focal.factor(one, *pictures.shape[1:3]) for one in cameras if one]
        return self.run(pictures) * np.array(factors)[:, None, None]


def no_network(name: str, reason: str) -> UserError:
    """The error for something that cannot be loaded."""
    return UserError(
        f"no depth network in {name} ({reason}): give a folder with its config.json and "
        f"model.safetensors, a name on the hub such as {ZOEDEPTH_MODEL}, or an ONNX file"
    )


def relative_depth(name: str, kind: str) -> UserError:
    """The error for a network without metres."""
    return UserError(
        f"{name} ({kind}) predicts relative depth, which has no unit: its scale and offset differ "
        "from picture to picture, so there are no metres to refine; give a metric model"
    )


def require_picture(picture: Path, zoe: Path) -> None:
    """Raises `UserError` where a file of pseudo depth of ours is of another picture."""
    from zoerefine.base.files.images import png_text  # engines need no OpenCV

    if other := other_picture(picture, png_text(zoe)):
        raise UserError(
            f"{not_made_for(other, zoe)} on its data set, or `infer` accepts it with --any-pseudo"
        )


def not_made_for(other: str, zoe: Path) -> UserError:
    return UserError(f"{zoe} was made for {other}: run data pseudo")


def other_picture(picture: Path, text: Mapping[str, str]) -> str:
    """Empty where pseudo depth with this text was made for a picture as it is now."""
    from zoerefine.base.files.images import file_bytes

    digest = text.get(PICTURE)
    if digest in (None, sha256(file_bytes(picture)).hexdigest()):
        return ""
    return f"another picture than {picture} is now"
