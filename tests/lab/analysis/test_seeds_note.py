"""With too few seeds for any significant difference, the page says how many are needed."""

import re

import pytest

from zoerefine.lab.analysis.groups import Measure, make_groups
from zoerefine.lab.analysis.report.tables import summarize
from zoerefine.lab.analysis.statistics.comparisons import compare_groups
from zoerefine.lab.runs.collect import collect


def summary(runs, groups, seeds):
    """The summary of groups that are far apart, with these seeds each."""
    for group in range(groups):
        for seed in range(seeds):
            score = 0.1 * (1 + group) + 0.0001 * seed
            runs.add(f"{group}-{seed}", {"LR": 10.0**-group}, (score, score), seed)
    collection, measure = collect([str(runs.folder)]), Measure("test")
    found = make_groups(collection.runs, measure)
    return summarize(collection, found, compare_groups(found, measure), measure)


# docs/analysis.md has the same numbers.
@pytest.mark.parametrize(("groups", "needed"), [(2, 4), (3, 5), (5, 6)])
def test_it_names_the_seeds_with_which_a_difference_can_be_significant(runs, groups, needed):
    (line,) = [line for line in summary(runs, groups, needed - 1) if "no difference can" in line]
    assert re.search(r"needs (\d+) seeds per group", line)[1] == str(needed)


@pytest.mark.parametrize(("groups", "needed"), [(2, 4), (3, 5), (5, 6)])
def test_with_that_many_seeds_a_large_difference_is_significant(runs, groups, needed):
    lines = summary(runs, groups, needed)
    assert not any("no difference can" in line for line in lines)
    assert "is better" in lines[1]


@pytest.mark.parametrize("seeds", [1, 2])
def test_it_names_them_without_any_test_too(runs, seeds):
    assert any("needs 4 seeds per group for one comparison" in s for s in summary(runs, 2, seeds))


def test_a_single_group_needs_none(runs):
    assert not any("seeds per group" in line for line in summary(runs, 1, 2))
