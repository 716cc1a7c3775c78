"""Where the texts of a drawn figure are, to test that none covers another."""

from itertools import combinations

import pytest
from matplotlib.text import Text

from zoerefine.lab.analysis.pictures.captions import overlap


def texts_of(figure):
    """Every visible text with its box in pixels."""
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    ticks = [label for axis in figure.axes for label in hidden_ticks(axis)]
    return {text: text.get_window_extent(renderer) for text in shown if text not in ticks}


def hidden_ticks(axis):
    """Labels of ticks beyond the limits and of hidden axes, which matplotlib does not draw."""
    for ticks, limits in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim())):
        for tick in ticks.get_major_ticks():
            if not axis.axison or not min(limits) <= tick.get_loc() <= max(limits):
                yield from (tick.label1, tick.label2)
    if not axis.axison:
        yield from (axis.xaxis.label, axis.yaxis.label)


def assert_readable(figure, narrowest=0.12):
    """No text covers another or leaves the picture, and no axis has shrunk.

    Turned texts are compared along their baselines only, since their boxes are mostly empty.
    """
    boxes = texts_of(figure)
    level = {text: box for text, box in boxes.items() if not text.get_rotation() % 90}
    for (a, first), (b, second) in combinations(level.items(), 2):
        assert overlap(first, second) < 4, (a.get_text(), b.get_text())
    for text, box in boxes.items():
        assert overlap(box, figure.bbox) == pytest.approx(box.width * box.height), text.get_text()
    for axis in figure.axes:
        if axis.get_label() != "<colorbar>":
            assert axis.get_window_extent().width > narrowest * figure.bbox.width
            assert axis.get_window_extent().height > 0.1 * figure.bbox.height


def assert_filled(figure):
    """Every curve and point is inside its axis, and an axis without any says why in a text."""
    for axis in figure.axes:
        if axis.get_label() == "<colorbar>":
            continue
        frame = axis.get_window_extent()
        lines = [line for line in axis.lines if line.get_transform() == axis.transData]
        for line in lines:
            pixels = axis.transData.transform(line.get_xydata())
            assert any(frame.contains(x, y) for x, y in pixels), axis.get_title(loc="left")
        texts = [text.get_text() for text in axis.texts]
        assert lines or axis.images or any(text.startswith("no ") for text in texts)
