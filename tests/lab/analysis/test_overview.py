"""The overview graph: no label covers another, ticks are epochs, one run and forty groups fit."""

import pytest

from tests.lab.analysis.awkward_runs import SETS, add_groups
from tests.lab.analysis.drawn_texts import assert_filled, assert_readable, texts_of
from zoerefine.lab.analysis.costs import group_costs
from zoerefine.lab.analysis.groups import Measure, choose_measure, make_groups
from zoerefine.lab.analysis.pictures.captions import spread
from zoerefine.lab.analysis.pictures.overview import overview_figure
from zoerefine.lab.analysis.pictures.style import LAYOUTS, style
from zoerefine.lab.analysis.report.tables import run_rows
from zoerefine.lab.runs.collect import collect


def drawn(runs, layout="page"):
    collection = collect([str(runs.folder)])
    measure = choose_measure(collection.runs)
    with style(LAYOUTS[layout]):
        groups = make_groups(collection.runs, measure)
        return overview_figure(collection, groups, measure, LAYOUTS[layout])


@pytest.mark.parametrize(("number", "name"), [*enumerate(SETS)], ids=SETS)
def test_texts_are_apart_and_every_curve_and_point_is_in_the_picture(runs, number, name):
    """On the page, and in one of the two layouts for papers."""
    add_groups(runs, **SETS[name])
    _, *narrow = LAYOUTS
    for layout in ("page", narrow[number % 2]):
        with style(LAYOUTS[layout]):
            figure = drawn(runs, layout)
            assert_readable(figure)
        assert_filled(figure)


@pytest.mark.parametrize(
    ("epochs", "ticks"),
    [
        (1, [1]),
        (2, [1, 2]),
        (12, [2, 4, 6, 8, 10, 12]),
        (16, [3, 6, 9, 12, 16]),
        (17, [3, 6, 9, 12, 15, 17]),
        (1000, [200, 400, 600, 800, 1000]),
    ],
)
def test_epochs_are_whole_numbers_that_end_where_the_data_end(runs, epochs, ticks):
    add_groups(runs, [0.1, 0.2], epochs=epochs, seeds=1)
    curves = drawn(runs).axes[0]
    low, high = curves.get_xlim()
    assert epochs < high < 1.05 * epochs + 1 and low < 1
    assert [label.get_text() for label in curves.get_xticklabels()] == [str(t) for t in ticks]


def test_a_group_is_named_without_the_key_where_one_key_differs(runs):
    add_groups(runs, [0.1, 0.2], name="net{}")
    figure = drawn(runs)
    texts = [text.get_text() for text in texts_of(figure)]
    for name in ("net0", "net1"):  # curve, final metric, cost
        assert sum(text.startswith(name) for text in texts) == 3
    assert not any("name" in text.lower() for text in texts)


def test_a_run_that_ended_with_nan_does_not_hide_the_others(runs):
    add_groups(runs, [0.1, float("nan"), 0.2])
    figure = drawn(runs)
    assert figure.axes[1].get_title(loc="left") == "Final AbsRel on test scenes"
    names = [text.get_text().split("  ")[0] for text in figure.axes[1].texts]
    assert names[:2] == ["network 0", "network 2"]


def test_a_panel_without_anything_to_show_is_not_drawn(runs):
    add_groups(runs, [0.1, 0.2], parameters=[None, None])
    for layout in LAYOUTS:
        titles = [axis.get_title(loc="left") for axis in drawn(runs, layout).axes]
        assert titles == ["Validation AbsRel while training", "Final AbsRel on test scenes"]
    for path in runs.folder.glob("*/metrics.jsonl"):
        path.unlink()
    assert len(drawn(runs).axes) == 1


def test_names_take_little_room_between_the_panels(runs):
    add_groups(runs, [0.1, 0.2], name="a very long name of a network, no. {}")
    for layout in ("page", "two-columns"):
        figure = drawn(runs, layout)
        width = sum(axis.get_window_extent().width for axis in figure.axes)
        assert width > 0.7 * figure.bbox.width


def test_equal_costs_have_one_tick(runs):
    add_groups(runs, [0.1, 0.2])
    assert [label.get_text() for label in drawn(runs).axes[2].get_xticklabels()] == ["1"]


def test_the_cost_is_latency_only_where_every_group_was_exported(runs):
    add_groups(runs, [0.1, 0.2])
    groups = make_groups(collect([str(runs.folder)]).runs, Measure("test"))
    costs, unit = group_costs(groups)
    assert (unit, [cost.costs for cost in costs]) == ("parameters, millions", [[1.0] * 3] * 2)
    for group, latency_ms in zip(groups, (4.0, 6.0), strict=True):
        group.scored[0].engine["latency_ms"] = latency_ms  # one seed of the group was exported
    costs, unit = group_costs(groups)
    assert (unit, [cost.costs for cost in costs]) == (
        "engine latency, ms per frame", [[4.0] * 3, [6.0] * 3],
    )  # fmt: skip
    assert [cost.mean for cost in costs] == [4, 6]


@pytest.mark.parametrize(
    ("fact", "values"),
    [
        ("engine", ("onnx", "torchscript")),
        ("precision", ("fp32", "fp16")),
        ("width", (64, 128)),
        ("processor", ("one CPU", "another")),
        ("device", ("cpu", "cuda")),
    ],
)
def test_latencies_of_unlike_measurements_are_no_costs_of_settings(runs, fact, values):
    add_groups(runs, [0.1, 0.2])
    collection = collect([str(runs.folder)])
    groups = make_groups(collection.runs, Measure("test"))
    like = {"engine": "onnx", "precision": "fp32", "latency_ms": 4.0, "height": 48, "width": 64,
            "processor": "one CPU", "device": "cpu"}  # fmt: skip
    for group, value in zip(groups, values, strict=True):
        group.scored[0].engine.update(like | {fact: value})
    assert group_costs(groups)[1] == "parameters, millions"
    header, rows = run_rows(collection, groups)
    found = {tuple(row[header.index(name)] for name in ("engine", "precision")) for row in rows}
    told = {tuple(group.scored[0].engine[n] for n in ("engine", "precision")) for group in groups}
    assert found == told | {(None, None)}
    for group in groups:
        group.scored[0].engine.update(like)
    assert group_costs(groups)[1] == "engine latency, ms per frame"


def test_spread_keeps_the_order_the_gap_and_the_frame():
    assert spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])
    assert spread([1.0, 1.0], 0.1) == pytest.approx([0.9, 1.0])
    assert spread([-1.0, 0.0], 0.1) == pytest.approx([0.0, 0.1])
    assert spread([], 0.1) == []
