"""The pictures of the page: the overview graph and held-out frames.

The graph is drawn for a wide and a narrow page, with colours of dark mode; our own trainings refine
and draw the frames.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.registries import OWN_TRAINING
from zoerefine.lab.analysis.groups import Measure, RunGroup
from zoerefine.lab.analysis.pictures.captions import pseudo_label
from zoerefine.lab.analysis.pictures.overview import overview_figure
from zoerefine.lab.analysis.pictures.style import NO_DATES, PALETTE, Layout, style
from zoerefine.lab.runs.record import Collection

OTHER_GROUP = ("#6b6b6b", "#9a9a9a")  # of groups beyond the palette: light, dark
# The panels beside each other, and below each other for a phone.
PAGE_LAYOUTS = {"wide": Layout(11, 4.2, 3, 10, 18, 0), "narrow": Layout(3.6, 8.6, 1, 10, 12, 0)}
# Each colour of a picture, and its counterpart in dark mode.
DARK = {
    "#0072b2": "#4ba3e3",
    "#d55e00": "#ff8c42",
    "#009e73": "#2ec99b",
    "#cc79a7": "#e59ac6",
    "#e69f00": "#f2b632",
    "#56b4e9": "#a5dbff",
    "#000000": "#e8e8e8",
    "#ffffff": "transparent",
    "#4c4c4c": "#b4b9be",
    "#737373": "#b4b9be",
    "#808080": "#9aa0a6",
}
COLOR = re.compile(r"\b(fill|stroke): (#[0-9a-f]{6})\b")


def draw_graph(collection: Collection, groups: list[RunGroup], measure: Measure) -> dict[str, str]:
    """The overview graph as data URLs: `wide` and `narrow`, without a caption."""
    return {
        name: svg_address(collection, groups, measure, layout)
        for name, layout in PAGE_LAYOUTS.items()
    }


def svg_address(
    collection: Collection, groups: list[RunGroup], measure: Measure, layout: Layout
) -> str:
    """The graph as an SVG, whose colours follow the page's colour scheme."""
    file = StringIO()
    with style(layout):
        figure = overview_figure(collection, groups, measure, layout)
        # The room at the edges is for fonts of the browser that are wider.
        room: Any = {"bbox_inches": "tight", "pad_inches": 0.08}
        figure.savefig(file, format="svg", metadata=NO_DATES["svg"], **room)
    return f"data:image/svg+xml;base64,{b64encode(themed(file.getvalue()).encode()).decode()}"


def themed(svg: str) -> str:
    """An SVG of matplotlib's with other colours in dark mode."""
    text = COLOR.sub(r"\1: var(--c\2, \2)", svg)
    text = text.replace("var(--c#", "var(--c")
    dark = variables({f"c{light[1:]}": color for light, color in DARK.items()})
    rules = (
        f"text {{ fill: var(--c000000, #000000) }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )
    return text.replace("<defs>", f'<defs>\n  <style type="text/css">{rules}</style>', 1)


def color_rules() -> str:
    """The groups' colours as CSS variables: `--group-0`, ... and `--group-other`."""
    light = {f"group-{i}": color for i, color in enumerate(PALETTE)}
    dark = {name: DARK[color.lower()] for name, color in light.items()}
    light["group-other"], dark["group-other"] = OTHER_GROUP
    return (
        f":root {{ {variables(light)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {variables(dark)} }} }}"
    )


def variables(values: Mapping[str, str]) -> str:
    """CSS declarations of variables."""
    return " ".join(f"--{name}: {value};" for name, value in values.items())


def graph_text(measure: Measure, curves_of: str) -> str:
    """The graph in words, for a reader who sees no pictures."""
    return (
        f"{curves_of} while training, a curve with its band for each group; final {measure.label} "
        f"of every run with the mean of each group; {measure.label} of each group against its "
        "cost. The tables of this page hold the numbers."
    )


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
    best = [
        (group.label, group.scored[(measure.sign * group.scores).argmin()])
        for group in groups
        if group.scored
    ]
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
