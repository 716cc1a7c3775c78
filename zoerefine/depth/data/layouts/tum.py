"""Recordings in the format of TUM's RGB-D benchmark: lists of files with their time stamps.

<recording>/rgb.txt            a time stamp in seconds and a file a line: RGB
<recording>/depth.txt          the same: depth, 16 bits, metres = value / 5000, 0 = invalid
<recording>/pseudo.txt         optional, the same: pseudo depth, 16 bits, metres = value / 256
<recording>/pseudo/<stem>.png  pseudo depth that is not in pseudo.txt, by its picture's stem
<recording>/intrinsics.txt     optional: fx fy cx cy

Lines that begin with # are comments, and files are relative to the recording. The data folder is
one recording, or contains several; each is a clip and a scene. A picture and a depth file belong
together if their time stamps are the nearest of each other's, at most 0.02 s apart.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.depth.data.dataset import Frame
from zoerefine.depth.data.depth_codec import DepthEncoding
from zoerefine.depth.data.intrinsics import Intrinsics, checked_intrinsics
from zoerefine.depth.data.layouts import recordings

RGB_LIST, DEPTH_LIST, PSEUDO_LIST = "rgb.txt", "depth.txt", "pseudo.txt"
INTRINSICS = "intrinsics.txt"
TUM = DepthEncoding(16, 5000, 1.0)
TOLERANCE_NS = 20_000_000
MAX_SECONDS = 10**12  # 31,700 years
MAX_PARTNERS = 100  # mean number of stamps within the tolerance of one: more is no recording


@dataclass(frozen=True)
class Entry:
    """A line of a list. Time stamps are integers because float64 seconds are not exact."""

    time_ns: int
    path: Path
    place: str  # the list and the line, for messages


def associate(
    first_ns: Sequence[int], second_ns: Sequence[int], tolerance_ns: int = TOLERANCE_NS
) -> dict[int, int]:
    """Pair time stamps one to one; returns indices into `second_ns` by indices into `first_ns`.

    The nearest two come first, then the nearest two of the rest, up to the tolerance, as in TUM's
    associate.py. So no two stamps that could be paired are both paired with one farther away.
    Raises `UserError` for lists whose stamps are nearly all the same.
    """
    order = sorted(range(len(second_ns)), key=second_ns.__getitem__)
    times_ns = [second_ns[k] for k in order]
    candidates = []
    for i, time_ns in enumerate(first_ns):
        for k in range(bisect_left(times_ns, time_ns - tolerance_ns), len(times_ns)):
            if times_ns[k] > time_ns + tolerance_ns:
                break
            candidates.append((abs(times_ns[k] - time_ns), i, order[k]))
        if len(candidates) > MAX_PARTNERS * len(first_ns):
            raise UserError(
                f"more than {MAX_PARTNERS} time stamps lie within {tolerance_ns / 1e9:g} s of one: "
                "give each file the time at which it was taken"
            )
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, i, j in sorted(candidates):
        if i not in pairs and j not in taken:
            pairs[i] = j
            taken.add(j)
    return pairs


def read_recording(recording: Path) -> tuple[list[Frame], list[str]]:
    """Its frames by their times, and a line for each file without a partner."""
    pictures = _entries(recording / RGB_LIST)
    depths, listed = _entries(recording / DEPTH_LIST), _entries(recording / PSEUDO_LIST)
    depth_of, pseudo_of = (_partners(pictures, others) for others in (depths, listed))
    named = recordings.files_by_stem(recording / recordings.PSEUDO, ".png")
    intrinsics = _intrinsics(recording / INTRINSICS)
    frames: dict[str, Frame] = {}
    for picture, depth in sorted(depth_of.items(), key=lambda pair: pair[0].time_ns):
        pseudo = pseudo_of.get(picture)
        name = picture.path.stem
        if name in frames:
            raise UserError(f"{picture.place}: another picture is named {name}: rename one")
        frames[name] = Frame(
            recording.name,
            name,
            recording.name,
            picture.path,
            depth.path,
            pseudo.path if pseudo else named.get(name),
            None,
            intrinsics,
        )
    if pictures and depths and not frames:
        raise UserError(
            f"{recording}: of {len(pictures)} pictures and {len(depths)} depth files no two are "
            f"within {TOLERANCE_NS / 1e9:g} s: {RGB_LIST} and {DEPTH_LIST} have times in seconds"
        )
    stems = {picture.path.stem for picture in pictures}
    known = {entry.path for entry in listed}
    strays = [path for stem, path in named.items() if stem not in stems and path not in known]
    return list(frames.values()), [
        *_unmatched(pictures, depth_of, "depth"),
        *_unmatched(depths, depth_of.values(), "picture"),
        *_unmatched(listed, pseudo_of.values(), "picture"),
        *(f"{path} belongs to no frame: no picture is named {path.stem}" for path in strays),
    ]


def _entries(path: Path) -> list[Entry]:
    """The lines of a list; empty where there is none."""
    lines = recordings.numbered_lines(path) if path.exists() else []
    return [_entry(path.parent, line, f"{path} line {number}") for number, line in lines]


def _entry(recording: Path, line: str, place: str) -> Entry:
    try:
        stamp, name = line.split(maxsplit=1)
        seconds = Decimal(stamp)
        if not abs(seconds) < MAX_SECONDS:  # also of "nan"
            raise ValueError
        time_ns = round(seconds * 10**9)
    except (ArithmeticError, ValueError):
        raise UserError(
            f"{place}: expected a time stamp in seconds and a file; got {line!r}"
        ) from None
    path = recording / name
    if not path.is_file():
        raise UserError(f"{place}: no file {name}")
    return Entry(time_ns, path, place)


def _partners(pictures: list[Entry], others: list[Entry]) -> dict[Entry, Entry]:
    pairs = associate([entry.time_ns for entry in pictures], [entry.time_ns for entry in others])
    return {pictures[i]: others[j] for i, j in sorted(pairs.items())}


def _unmatched(entries: list[Entry], matched: Iterable[Entry], partner: str) -> list[str]:
    known = set(matched)
    return [
        f"{entry.path} ({entry.place}) has no {partner} within {TOLERANCE_NS / 1e9:g} s"
        for entry in entries
        if entry not in known
    ]


def _intrinsics(path: Path) -> Intrinsics | None:
    rows = recordings.number_rows(path)
    return checked_intrinsics([word for row in rows for word in row], str(path)) if rows else None


LAYOUT = recordings.Recordings(
    "rgb.txt with depth.txt",
    (RGB_LIST, DEPTH_LIST),
    "real frames in TUM's format",
    TUM,
    read_recording,
)
