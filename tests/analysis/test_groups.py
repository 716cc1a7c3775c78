"""Groups and comparisons: seeds are replicates, and nothing is claimed without enough of them."""

import math

import pytest

from zoerefine.analysis.collect import collect
from zoerefine.analysis.groups import choose_split, compare_groups, make_groups
from zoerefine.errors import UserError


def collected(runs):
    return collect([str(runs.folder / "*")]).runs


def test_runs_that_differ_in_their_seed_alone_are_one_group(runs):
    for seed in range(3):
        runs.add(f"a{seed}", {"LR": 1e-3}, seed=seed, scenes=(0.2 + 0.01 * seed,))
        runs.add(f"b{seed}", {"LR": 1e-2}, seed=seed, scenes=(0.4 + 0.01 * seed,))
    groups = make_groups(collected(runs), "test")
    assert [group.label for group in groups] == ["lr 0.001", "lr 0.01"]
    assert groups[0].center == pytest.approx(0.21)
    assert groups[0].interval == pytest.approx((0.2, 0.22))
    (difference,) = compare_groups(groups, "test")
    assert difference.difference == pytest.approx(-0.2)
    assert (difference.delta, difference.probability) == (1, 1)
    assert difference.p == pytest.approx(0.1)
    assert "looks better, but chance is not excluded" in difference.verdict


def test_many_seeds_show_a_real_difference_and_hide_none_that_is_not(runs):
    for seed in range(8):
        shift = 0.002 * seed
        runs.add(f"a{seed}", {"LR": 1e-3}, seed=seed, scenes=(0.20 + shift, 0.30 + shift))
        runs.add(f"b{seed}", {"LR": 1e-2}, seed=seed, scenes=(0.25 + shift, 0.35 + shift))
        runs.add(f"c{seed}", {"LR": 1e-1}, seed=seed, scenes=(0.214 - shift, 0.314 - shift))
    found = {
        (d.first, d.second): d for d in compare_groups(make_groups(collected(runs), "test"), "test")
    }
    real = found["lr 0.001", "lr 0.01"]
    assert real.verdict == "the first is better"
    assert (real.scenes_won, real.scenes) == (2, 2)
    assert real.interval[1] < 0
    assert found["lr 0.001", "lr 0.1"].verdict.startswith("no difference")


def test_few_seeds_are_said_and_get_no_interval(runs):
    runs.add("a", {"LR": 1e-3}, scenes=(0.2,))
    runs.add("b", {"LR": 1e-2}, scenes=(0.9,))
    groups = make_groups(collected(runs), "test")
    assert [group.interval for group in groups] == [None, None]
    (difference,) = compare_groups(groups, "test")
    assert difference.verdict == "too few seeds to say (1; 3 are needed)"
    assert difference.interval is None


def test_groups_by_a_named_setting(runs):
    for number, (lr, clip) in enumerate([(1e-3, 1.0), (1e-2, 1.0), (1e-3, 2.0)]):
        runs.add(f"r{number}", {"LR": lr, "CLIP": clip})
    groups = make_groups(collected(runs), "test", by="TRAIN.CLIP")
    assert sorted(len(group.runs) for group in groups) == [1, 2]
    with pytest.raises(UserError, match=r"--by TRAIN\.NONE: no such setting"):
        make_groups(collected(runs), "test", by="TRAIN.NONE")


def test_missing_metrics_and_nan_count_as_not_measured(runs):
    runs.add("a", {"LR": 1e-3})
    runs.add("b", {"LR": 1e-2}, test={"refined": {"abs_rel": math.nan}})
    runs.add("c", {"LR": 1e-1}, test={"other": 1})
    found = collected(runs)
    assert choose_split(found) == "val"
    groups = make_groups(found, "test")
    assert [len(group.scores) for group in groups] == [1, 0, 0]


def test_curves_of_other_lengths_and_a_row_cut_short(runs):
    folder = runs.add("a", curve=(0.5, 0.4, 0.3))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"phase": "val", "epo')
    runs.add("b", curve=())
    curves = {run.name: run.curve for run in collected(runs)}
    assert curves["a"].epochs == [1, 2, 3]
    assert curves["a"].refined == [0.5, 0.4, 0.3]
    assert curves["b"] is None
