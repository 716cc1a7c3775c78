"""Whether pseudo depth is of the network that a bundle was trained on, and not refined already."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files import images
from zoerefine.base.messages import say, warn
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.dataset import evenly_spaced
from zoerefine.depth.data.depth_unit import ASKED_FRAMES, median_m, question_of_far
from zoerefine.depth.data.networks.pseudo_source import PseudoSource, source_from_json
from zoerefine.depth.infer.inference import POINTS_ALONE
from zoerefine.depth.infer.results import BUNDLE


def check_source(bundle: Path, manifest: Mapping[str, Any], given: PseudoSource) -> None:
    """Say where one of them is unknown: this network, or that of the bundle's training.

    Raises `UserError` where it was trained on that of another one.
    """
    trained = source_from_json(manifest.get("pseudo"))
    if trained.is_known != given.is_known:
        now = given.now
        say(f"{bundle} was trained on pseudo depth of: {trained}; it now refines that of: {now}")
    elif not given.is_like(trained):
        raise UserError(
            f"{bundle} was trained on pseudo depth of {trained} and would refine that of {given}, "
            "which has other errors: use the same network, or accept it with --any-pseudo"
        )


def warn_of_far(folder: Path, paths: Sequence[Path], far_m: float) -> None:
    """Warn where pseudo depth is mostly beyond what a refiner was trained on, by some files.

    What cannot be read is left out.
    """
    medians = []
    for path in evenly_spaced(paths, ASKED_FRAMES):
        with suppress(UserError):  # who needs this file says why
            zoe_u16 = read_zoe(path)
            if zoe_u16.any():
                medians.append(median_m(zoe_u16))
    if question := question_of_far(f"--depth {folder}", medians, far_m):
        warn(question)


def refuse_refined(paths: Iterable[Path]) -> None:
    """Raises `UserError` where one of these files of pseudo depth is depth of an inference."""
    for path in paths:
        if bundle := images.png_text(path).get(BUNDLE):
            alone = bundle.startswith(POINTS_ALONE)
            by = "metric points have corrected" if alone else f"bundle {bundle[:12]} has refined"
            raise UserError(
                f"{path} is depth that {by}, no pseudo depth: give what a network predicted, or "
                "accept it with --any-pseudo"
            )
