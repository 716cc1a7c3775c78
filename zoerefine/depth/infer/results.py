"""The files of an inference, and the provenance text in each of them.

depth/NAME.png           refined depth, 16 bits, metres = value / 256
confidence/NAME.png      the spread of refined depth, 16 bits, if asked for
zoe_depth_raw/NAME.png   pseudo depth in the same format, if a depth network was run
colors/NAME.png          refined depth in colours, if asked for
clouds/NAME.ply          refined depth as points in space, if asked for
outputs.json             the bundle, and what the values of depth/ and confidence/ are
"""

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files import images
from zoerefine.base.files.atomic import HALF_WRITTEN, remove_half_written, write_json
from zoerefine.base.files.file_lock import lock, try_lock
from zoerefine.base.files.own_files import JSON_MARK, is_ours, refuse_foreign
from zoerefine.base.messages import first_few, say, warn
from zoerefine.depth.data.depth_codec import SCALE, ZOE_UNIT_M
from zoerefine.depth.data.networks.pseudo_source import FILE as PSEUDO_SOURCE_FILE
from zoerefine.depth.exporting import OUTPUTS
from zoerefine.depth.infer.point_cloud import CameraOptions, is_whole_ply, ply

BUNDLE, COMMIT, INPUTS = "zoerefine-bundle", "zoerefine-commit", "zoerefine-inputs"
STREAM = "stream"  # in outputs.json: whether depth is steady over time
SPREAD_SCALE = {"confidence-scale": OUTPUTS["spread"]["meaning"]}
DEPTH, CONFIDENCE, PSEUDO_DEPTH, COLORS, CLOUDS = (
    "depth", "confidence", "zoe_depth_raw", "colors", "clouds",
)  # fmt: skip
OUTPUTS_FILE, METRICS_FILE = "outputs.json", "metrics.json"
FEW = 3  # frames that a line names
WRITTEN = r".+\.(png|ply|json)"  # names of files

Provenance = Mapping[str, str]


@dataclass(frozen=True)
class ResultFolder:
    """The folder that one inference writes to.

    Attributes:
        bundle, commit: digest and commit of the engine, recorded in every file.
        camera: of a frame by its name, for point clouds; None: no point clouds.
        with_confidence: whether the spread of depth is written, too.
        with_colors: whether `color_pictures` draws the frames afterwards.
        with_stream: whether depth is steady from frame to frame.
    """

    root: Path
    bundle: str
    commit: str
    camera: Callable[[str], CameraOptions] | None = None
    with_confidence: bool = False
    with_colors: bool = False
    with_stream: bool = False

    def picture(self, folder: str, name: str) -> Path:
        """The picture of a frame in one of the folders."""
        return self.root / folder / f"{name}.png"

    def origin(self, inputs: str) -> dict[str, str]:
        """What every file of a frame states, refined from inputs of this digest."""
        return {BUNDLE: self.bundle, COMMIT: self.commit, INPUTS: inputs}

    def files(self, name: str, inputs: str) -> dict[Path, Provenance]:
        """Every file to write for a frame while it is refined, with its provenance.

        Args:
            inputs: the digest of what the frame is refined from.
        """
        origin = self.origin(inputs)
        files: dict[Path, Provenance] = {self.picture(DEPTH, name): origin | SCALE}
        if self.with_confidence:
            files[self.picture(CONFIDENCE, name)] = origin | SPREAD_SCALE
        if self.camera:
            files[self.root / CLOUDS / f"{name}.ply"] = origin | {"camera": str(self.camera(name))}
        return files

    def is_done(self, name: str, inputs: str) -> bool:
        """Whether all files of a frame exist, from this bundle, these inputs and settings."""
        return all(has_provenance(path, text) for path, text in self.files(name, inputs).items())

    def read(self, name: str, inputs: str, folder: str = DEPTH) -> np.ndarray:
        """The values of a finished frame's picture in a folder, uint16 [H, W].

        Raises `UserError` for a file that cannot be read, or was not made by this bundle from
        these inputs: another program has replaced it.
        """
        path = self.picture(folder, name)
        data = images.file_bytes(path)
        if not self.files(name, inputs)[path].items() <= images.png_text(io.BytesIO(data)).items():
            raise UserError(f"{path} was replaced after it was made: start this command again")
        return images.decode_values(data, str(path))

    def write(self, name: str, inputs: str, rgb: np.ndarray, outputs: Sequence[np.ndarray]) -> None:
        """Write the files of a frame. Raises `UserError` where another program's file is there.

        Its other results, of another bundle or of other inputs, are removed.

        Args:
            rgb: uint8 [H, W, 3].
            outputs: uint16 [H, W]: refined depth, and the spread if it is written.
        """
        depth_u16 = outputs[0]
        self.remove_metrics_of_other_depth(name, inputs)
        files = self.files(name, inputs)
        refuse_foreign(files, "--out")  # a video's frames are not all known before
        others = [self.picture(folder, name) for folder in (CONFIDENCE, COLORS)]
        for path in (*others, self.root / CLOUDS / f"{name}.ply"):
            is_stale = path.is_file() and not has_provenance(path, self.origin(inputs))
            if is_stale and path not in files and is_ours(path):
                path.unlink(missing_ok=True)
        for path, provenance in files.items():
            if path.suffix == ".ply":
                assert self.camera
                camera = self.camera(name).camera(*depth_u16.shape)
                images.write_bytes(
                    path, ply(depth_u16 * np.float32(ZOE_UNIT_M), rgb, camera, provenance)
                )
            else:
                is_depth = path == self.picture(DEPTH, name)
                images.write_png(path, depth_u16 if is_depth else outputs[1], provenance)

    def write_outputs_file(self) -> None:
        """State the origin of the files, and what their values are, for programs that read them."""
        written = {DEPTH: "depth"} | ({CONFIDENCE: "spread"} if self.with_confidence else {})
        outputs = {
            folder: {fact: OUTPUTS[name][fact] for fact in ("units", "meaning")}
            for folder, name in written.items()
        }
        facts: dict[str, Any] = JSON_MARK | self.engine_facts | {"outputs": outputs}
        facts |= {STREAM: True} if self.with_stream else {}
        write_json(self.root / OUTPUTS_FILE, facts)

    @property
    def engine_facts(self) -> dict[str, str]:
        """Whose results outputs.json and metrics.json are of."""
        return {"bundle": self.bundle, "commit": self.commit}

    def warn_of_others(self, done: Mapping[str, str], left_out: Mapping[str, str]) -> None:
        """Name depth in the folder that outputs.json does not speak of: of frames that are not done
        now, and of another bundle, or of other inputs than those of a frame that was left out.

        Args:
            done, left_out: the digest of the inputs of each frame.
        """
        folder, others = self.root / DEPTH, []
        for path in sorted(folder.rglob("*.png")):
            name = str(path.relative_to(folder).with_suffix(""))
            if name not in done and BUNDLE in (text := images.png_text(path)):
                expected = {BUNDLE: self.bundle}
                expected |= {INPUTS: left_out[name]} if name in left_out else {}
                if not expected.items() <= text.items():
                    others.append(name)
        if others:
            warn(
                f"{folder} still has depth of another bundle or of other inputs, of frames that "
                f"were not refined now: {first_few(others, FEW)}"
            )

    def remove_metrics_of_others(self) -> None:
        """Remove metrics.json, if zoerefine wrote it of another bundle or commit, and say so."""
        file = self.root / METRICS_FILE
        if not (file.is_file() and is_ours(file)):
            return
        if not self.engine_facts.items() <= json.loads(file.read_bytes()).items():
            file.unlink(missing_ok=True)
            say(f"{file} was of another bundle or commit, and was removed")

    def remove_metrics_of_other_depth(self, name: str, inputs: str) -> None:
        """Remove our metrics.json, and say so, before a frame is written that it does not know.

        A frame with this depth may be written again, for a cloud of it.
        """
        file, depth = self.root / METRICS_FILE, self.picture(DEPTH, name)
        if not file.is_file() or has_provenance(depth, self.files(name, inputs)[depth]):
            return
        if is_ours(file):
            with suppress(FileNotFoundError):  # removed for another frame at the same time
                file.unlink()
                say(f"{file} was of other frames or inputs, and was removed")

    @contextmanager
    def in_use(self, work: str) -> Iterator[None]:
        """Hold the folder while an inference writes to it.

        Removes the temporary files of an inference that was killed, unless another inference is
        writing here now. Several may write at the same time if they do the same work.

        Args:
            work: a text that tells bundle, inputs and options. The lock file holds it.

        Raises:
            UserError: an inference that does other work is writing here now.
        """
        lock_file = self.root / ".lock"
        with ExitStack() as held:
            with lock(self.root / ".starting.lock"):
                with try_lock(lock_file) as exclusive:
                    if exclusive is not None:
                        self.remove_temporary_files()
                        lock_file.write_text(work)
                held.enter_context(lock(lock_file, shared=True))
                if lock_file.read_text() != work:
                    raise UserError(
                        f"another inference with other inputs or options is writing to --out "
                        f"{self.root}: wait until it has ended, or give another folder"
                    )
            yield

    def remove_temporary_files(self) -> None:
        """Remove what `files.replacing` left when it was killed."""
        found = [self.root.glob(HALF_WRITTEN)]
        for folder in (DEPTH, CONFIDENCE, PSEUDO_DEPTH, COLORS, CLOUDS):
            found.append((self.root / folder).rglob(HALF_WRITTEN))
        remove_half_written(chain.from_iterable(found), WRITTEN)

    def refuse_foreign_files(self, names: Iterable[str], metrics: bool, runs_network: bool) -> None:
        """Raises `UserError` if a file of another program has the name of one to be written.

        Args:
            names: of all frames that are known before.
            metrics, runs_network: whether metrics.json and pseudo depth are written.
        """
        written = [self.root / OUTPUTS_FILE]
        written += [self.root / METRICS_FILE] if metrics else []
        written += [self.root / PSEUDO_DEPTH / PSEUDO_SOURCE_FILE] if runs_network else []
        refuse_foreign(written, "--out")
        folders = [COLORS] * self.with_colors + [PSEUDO_DEPTH] * runs_network
        for name in names:
            pictures = [self.picture(folder, name) for folder in folders]
            refuse_foreign([*self.files(name, ""), *pictures], "--out")

    def refuse_mixing(self) -> None:
        """Raises `UserError` if the folder has depth with --stream, and it is made without, or so.

        `refuse_foreign_files` has checked that outputs.json is ours.
        """
        file = self.root / OUTPUTS_FILE
        if file.exists() and json.loads(file.read_bytes()).get(STREAM, False) != self.with_stream:
            was, now = ("without", "with") if self.with_stream else ("with", "without")
            raise UserError(
                f"--out {self.root} has depth made {was} --stream, and this command is {now} it: "
                "give another folder"
            )


def check_separate(out: Path, root: Path | None, folders: Iterable[Path]) -> None:
    """Raises `UserError` if results would later be read as pictures, or overwrite what is read.

    Args:
        root: a folder that is searched for pictures recursively.
        folders: all folders that files are read from.
    """
    if root and out.resolve().is_relative_to(root.resolve()):
        raise UserError(
            f"--out {out} is inside {root}, so the next command would read results as pictures: "
            "give another folder"
        )
    written = [(out / name).resolve() for name in (DEPTH, CONFIDENCE, COLORS, CLOUDS)]
    for folder in folders:
        if any(folder.resolve().is_relative_to(one) for one in written):
            raise UserError(
                f"{folder} holds results of --out {out} and would be overwritten while it is "
                "read: give another folder"
            )


def refuse_one_folder(given: Mapping[str, str | Path | None]) -> None:
    """Raises `UserError` where one folder is given for two kinds of files of the same names.

    `given` has the places by their options.
    """
    places = {option: os.path.realpath(path) for option, path in given.items() if path}
    for one, other in combinations(places, 2):
        if places[one] == places[other]:
            raise UserError(
                f"{one} and {other} are both {given[one]}: a frame's files have one name, so each "
                "kind needs a folder; links will do"
            )


def check_writable(folder: Path) -> None:
    """Make a folder, if it is missing. Raises `UserError` if nothing can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{folder} cannot be written to: {error.strerror}") from None


def has_provenance(path: Path, provenance: Provenance) -> bool:
    """Whether a file is whole and has this text."""
    if path.suffix == ".png":
        return provenance.items() <= images.png_text(path).items() and images.png_is_intact(path)
    return is_whole_ply(path, provenance)


def digest_of(*fingerprints: str) -> str:
    """A short digest of what a file is made from."""
    return hashlib.blake2b(
        "\n".join(fingerprints).encode(errors="surrogateescape"), digest_size=8
    ).hexdigest()


def file_fingerprint(path: Path) -> str:
    """A text that changes with a file's name, size or time; "" if there is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return ""
    return f"{path.name} {stat.st_size} {stat.st_mtime_ns}"
