"""Held-out frames in the report, which our own trainings refine and draw."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.registries import OWN_TRAINING
from zoerefine.lab.analysis.groups import RunGroup
from zoerefine.lab.analysis.measure import Measure
from zoerefine.lab.analysis.pictures.captions import pseudo_label
from zoerefine.lab.runs.record import Run

GROUPS_OF_FRAMES = 5  # the best groups, whose best runs refine the example frames


@dataclass(frozen=True)
class ExampleDepth:
    """One depth of a frame, with its error: JPEG in base64.

    Attributes:
        label: the group, or the name of the pseudo depth.
        run: the run that refined it; empty for the pseudo depth.
    """

    label: str
    run: str
    abs_rel: float
    depth: str
    error: str


@dataclass(frozen=True)
class ExampleFrame:
    """A held-out frame: RGB and true depth as JPEG in base64, pseudo depth and refined depths.

    All depths have one colour scale, from 0 to `farthest_m`.
    """

    name: str
    farthest_m: float
    rgb: str
    truth: str
    depths: list[ExampleDepth]


@dataclass(frozen=True)
class Examples:
    """The example frames, what they are or why there are none, and the colours of their bars."""

    frames: list[ExampleFrame]
    note: str
    colors: dict[str, Any] = field(default_factory=dict)


def frame_data(examples: Examples) -> dict[str, Any]:
    """The example frames with the colours of depths and errors."""
    return {
        "frames": [asdict(frame) for frame in examples.frames],
        "frames_note": examples.note,
        **examples.colors,
    }


def choose_examples(groups: Sequence[RunGroup], measure: Measure) -> Examples:
    """Held-out frames as the best run of each of the best groups refines them."""
    best = [(group.label, best_run(group, measure)) for group in groups if group.scored]
    if not best:
        return Examples([], "No run has a final metric.")
    own = [(label, run) for label, run in best if not run.is_foreign][:GROUPS_OF_FRAMES]
    if not own:
        return Examples([], "Runs of other repositories have no frames that could be shown.")
    (label, run), *_ = own
    try:
        frames, missing, colors = OWN_TRAINING.load("example_frames")(own, pseudo_label(groups))
    except (UserError, OSError, ModuleNotFoundError) as error:  # no torch is here
        return Examples([], f"No frames of {run.name}: {error}")
    note = (
        f"The held-out frames that {run.name} (the best run of {label}) improves most, then those "
        "it improves least."
    )
    if len(own) > 1:
        note += " Other groups: their best run."
    reasons = [f" Not shown: {label}: {reason}." for label, reason in missing.items()]
    return Examples(frames, note + "".join(reasons), colors)


def best_run(group: RunGroup, measure: Measure) -> Run:
    """The run of a group with the best score."""
    pairs = zip(group.scores, group.scored, strict=True)
    return min(pairs, key=lambda pair: measure.sign * pair[0])[1]
