"""settings.png: many values, long names and wide ranges stay readable."""

import numpy as np
import pytest

from tests.lab.analysis import awkward_runs
from tests.lab.analysis.drawn_texts import assert_filled, assert_readable
from zoerefine.lab.analysis.groups import Measure
from zoerefine.lab.analysis.pictures.settings import settings_figure
from zoerefine.lab.analysis.pictures.style import style
from zoerefine.lab.analysis.statistics.importance import importances
from zoerefine.lab.runs.collect import collect

TEST = Measure("test")
LOSSES = [[{"name": "mse", "weight": 1.0}], [{"name": "l1_log", "weight": 1.0}]]
SETS = {
    "two runs": [{"LR": 0.1}, {"LR": 0.2}],
    "forty names": [{"NAME": f"network {number}"} for number in range(40)],
    "long names": [{"NAME": f"a network with a very long name, no. {i}"} for i in range(9)],
    "many decades": [{"LR": 10.0 ** -(number % 9)} for number in range(18)],
    "two decades": [{"LR": 0.001 * (1 + number)} for number in range(60)],
    "close numbers": [{"LR": 0.123456 + number * 1e-7} for number in range(9)],
    "large numbers": [{"SIZE": 10**9 + number} for number in range(9)],
    "lists": [{"LOSS": LOSSES[number % 2]} for number in range(8)],
    "many settings": [
        {f"KEY_{key}": (number + key) % 3 for key in range(12)} for number in range(20)
    ],
    "one value is missing": [{"LR": 0.1}, {"LR": 0.1, "CLIP": 1.0}, {"LR": 0.2}],
}


def collected(runs, settings):
    for number, tree in enumerate(settings):
        runs.add(f"r{number}", tree, scenes=(0.1 + 0.013 * (number % 7),))
    return collect([str(runs.folder)]).runs


def drawn(found):
    return settings_figure(found, TEST, importances(found, TEST))


@pytest.mark.parametrize("name", SETS)
def test_no_text_covers_another_or_leaves_the_picture(runs, name):
    with style():
        assert_readable(drawn(collected(runs, SETS[name])), narrowest=0.06)


@pytest.mark.parametrize("name", awkward_runs.SETS)
def test_the_settings_of_awkward_runs_are_readable(runs, name):
    awkward_runs.add_groups(runs, **awkward_runs.SETS[name])
    with style():
        figure = drawn(collect([str(runs.folder)]).runs)
        if name in ("one run", "only NaN"):
            assert figure is None  # nothing to compare
            return
        assert_readable(figure)
    assert_filled(figure)


def test_few_names_are_all_written_beside_their_column(runs):
    with style():
        parallel = drawn(collected(runs, SETS["lists"])).axes[1]
    assert {text.get_text() for text in parallel.texts} >= {"[mse 1]", "[l1_log 1]"}


def test_equal_scores_are_drawn(runs):
    for number in range(3):
        runs.add(f"r{number}", {"LR": 0.1 * number}, scenes=(0.2,))
    with style():
        assert_readable(drawn(collect([str(runs.folder)]).runs))


def test_values_are_ordered_by_score_and_the_rest_is_one_column(runs):
    found = collected(runs, SETS["forty names"])
    with style():
        axis = drawn(found).axes[0]
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert len(labels) == 8 and labels[-1] == "33 others"
    (points,) = axis.lines
    means = [np.mean(points.get_ydata()[points.get_xdata() == column]) for column in range(7)]
    assert means == sorted(means)


def test_words_that_are_numbers_have_an_axis_of_numbers(runs):
    """As those of a script without a config: 0.10 is no float's text."""
    found = collected(runs, [{"LR": value} for value in (0.5, "0.10", "0.050", 1)])
    with style():
        (points,) = drawn(found).axes[0].lines
    assert sorted(points.get_xdata()) == [0.05, 0.1, 0.5, 1]


def test_an_importance_has_the_range_of_random_halves_from_sixteen_runs_on(runs):
    settings = [{"LR": 10.0 ** -(number % 4), "CLIP": number % 3} for number in range(24)]
    found = collected(runs, settings)
    shares = importances(found, TEST)
    assert sum(share.value for share in shares.values()) == pytest.approx(1)
    assert all(0 <= share.low <= share.value <= share.high <= 1 for share in shares.values())
    assert all(share.low is None for share in importances(found[:12], TEST).values())
