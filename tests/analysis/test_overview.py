"""The overview graph: no label covers another, ticks are epochs, one run and forty groups fit."""

import numpy as np
import pytest

from tests.analysis.drawn_texts import assert_readable
from zoerefine.analysis.collect import collect
from zoerefine.analysis.cost import group_costs
from zoerefine.analysis.figure_style import LAYOUTS, style
from zoerefine.analysis.groups import make_groups
from zoerefine.analysis.label_places import spread
from zoerefine.analysis.measure import Measure, choose_measure
from zoerefine.analysis.overview import overview_figure


def add_groups(runs, finals, seeds=3, epochs=12, name="network {}", parameters=None, **results):
    """Groups whose curves fall to these final values."""
    rng = np.random.default_rng(0)
    for number, final in enumerate(finals):
        for seed in range(seeds):
            value = abs(final * (1 + 0.02 * rng.normal()))
            curve = [value * (1 + 4 * np.exp(-epoch / 2)) for epoch in range(epochs)]
            runs.add(
                f"r{number}-{seed}", {"NAME": name.format(number)}, seed=seed, scenes=(value,),
                curve=curve, parameters=(parameters or [10**6] * len(finals))[number], **results,
            )  # fmt: skip


SETS = {
    "one run": {"finals": [0.1], "seeds": 1},
    "three networks": {"finals": [0.08, 0.11, 0.2], "parameters": [10**6, 3 * 10**5, 14 * 10**6]},
    "equal values": {"finals": [0.1] * 7},
    "long names": {"finals": [0.1, 0.101, 0.102], "name": "a very long name of a network, no. {}"},
    "worse than the pseudo depth": {"finals": [2.0, 3.0, 2.5]},
    "near the pseudo depth": {"finals": [0.61, 0.59, 0.6]},
    "one seed": {"finals": [0.08, 0.09, 0.1, 0.12], "seeds": 1},
    "one epoch": {"finals": [0.08, 0.09], "epochs": 1},
    "a thousand epochs": {"finals": [0.1, 0.2], "epochs": 1000, "seeds": 1},
    "forty groups": {"finals": np.linspace(0.1, 0.2, 40).tolist(), "seeds": 1},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SETS)
def test_no_text_covers_another_or_leaves_the_picture(runs, name, layout):
    add_groups(runs, **SETS[name])
    collection = collect([str(runs.folder)])
    measure = choose_measure(collection.runs)
    with style(LAYOUTS[layout]):
        groups = make_groups(collection.runs, measure)
        assert_readable(overview_figure(collection, groups, measure, LAYOUTS[layout]))


def test_epochs_are_whole_numbers_that_end_where_the_data_end(runs):
    add_groups(runs, [0.1, 0.2])
    collection = collect([str(runs.folder)])
    with style():
        groups = make_groups(collection.runs, Measure("test"))
        curves = overview_figure(collection, groups, Measure("test")).axes[0]
    low, high = curves.get_xlim()
    assert 12 < high < 13
    assert all(tick == int(tick) for tick in curves.get_xticks() if low <= tick <= high)


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


def test_spread_keeps_the_order_the_gap_and_the_frame():
    assert spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])
    assert spread([1.0, 1.0], 0.1) == pytest.approx([0.9, 1.0])
    assert spread([-1.0, 0.0], 0.1) == pytest.approx([0.0, 0.1])
    assert spread([], 0.1) == []
