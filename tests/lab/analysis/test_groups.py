"""Groups and comparisons: seeds are replicates, and no conclusion is drawn without enough."""

import json
import math
import re
import shutil

import pytest

from tests.tables import csv_rows
from zoerefine.base.config import defaults
from zoerefine.cli import main
from zoerefine.lab.analysis.analyze import analyze
from zoerefine.lab.analysis.group_names import _unique
from zoerefine.lab.analysis.groups import Measure, choose_measure, make_groups
from zoerefine.lab.analysis.pictures import captions
from zoerefine.lab.analysis.report.tables import run_rows, summarize
from zoerefine.lab.analysis.statistics.comparisons import compare_groups
from zoerefine.lab.runs.collect import collect

TEST = Measure("test")


def collected(runs):
    return collect([str(runs.folder / "*")]).runs


def compared(runs):
    """The groups, and their differences."""
    groups = make_groups(collected(runs), TEST)
    return groups, compare_groups(groups, TEST)


def labels(runs, **options):
    return [group.label for group in make_groups(collected(runs), TEST, **options)]


def test_runs_that_differ_only_in_their_seed_form_one_group(runs):
    for seed in range(3):
        runs.add(f"a{seed}", {"LR": 1e-3}, seed=seed, scenes=(0.2 + 0.01 * seed,))
        runs.add(f"b{seed}", {"LR": 1e-2}, seed=seed, scenes=(0.4 + 0.01 * seed,))
    groups, (difference,) = compared(runs)
    assert [group.label for group in groups] == ["lr 0.001", "lr 0.01"]
    assert groups[0].mean == pytest.approx(0.21)
    half = 4.302653 * 0.01 / math.sqrt(3)  # Student's t of two degrees of freedom
    assert groups[0].interval == pytest.approx((0.21 - half, 0.21 + half), abs=1e-6)
    assert difference.difference == pytest.approx(groups[0].mean - groups[1].mean)
    assert difference.interval[0] < -0.2 < difference.interval[1]
    assert difference.probability == 1
    assert difference.p == pytest.approx(0.1)
    assert difference.verdict == "the first looks better; significance needs 4 seeds per group"


def test_runs_that_did_not_finish_neither_win_nor_count_beside_finished_ones(runs):
    for seed in range(4):
        runs.add(f"a{seed}", {"LR": 1e-3}, seed=seed, scenes=(0.2 + 0.01 * seed,))
        crashed = runs.add(f"b{seed}", {"LR": 1e-2}, seed=seed, scenes=(0.1 + 0.01 * seed,))
        (crashed / "status.json").write_text('{"state": "failed", "reason": "exit code 1"}')
    (runs.add("a4", {"LR": 1e-3}, seed=4, scenes=(0.01,)) / "status.json").unlink()
    groups, (found,) = compared(runs)
    counts = [(group.label, len(group.scores)) for group in groups]
    assert counts == [("lr 0.001", 4), ("lr 0.01", 4)]
    assert (found.verdict, found.p) == ("no conclusion: no run of a group finished", None)


def test_many_seeds_show_real_differences_and_no_others(runs):
    for seed in range(8):
        shift = 0.002 * seed
        runs.add(f"a{seed}", {"LR": 1e-3}, seed=seed, scenes=(0.20 + shift, 0.30 + shift))
        runs.add(f"b{seed}", {"LR": 1e-2}, seed=seed, scenes=(0.25 + shift, 0.35 + shift))
        runs.add(f"c{seed}", {"LR": 1e-1}, seed=seed, scenes=(0.214 - shift, 0.314 - shift))
    found = {(one.first, one.second): one for one in compared(runs)[1]}
    real = found["lr 0.001", "lr 0.01"]
    assert real.verdict == "the first is better"
    assert (real.scenes_won, real.scenes) == (2, 2)
    assert real.interval[1] < 0
    assert found["lr 0.001", "lr 0.1"].verdict == "no significant difference"


def test_with_fewer_than_three_seeds_no_conclusion_is_drawn(runs):
    runs.add("a", {"LR": 1e-3}, scenes=(0.2,))
    runs.add("b", {"LR": 1e-2}, scenes=(0.9,))
    groups, (difference,) = compared(runs)
    assert [group.interval for group in groups] == [None, None]
    assert difference.verdict == "no conclusion: 1 of at least 3 seeds"
    assert (difference.interval, difference.probability, difference.p) == (None, None, None)


def test_pairs_without_enough_seeds_do_not_weaken_the_other_tests(runs):
    for seed in range(4):
        runs.add(f"a{seed}", {"LR": 1e-3}, seed=seed, scenes=(0.2 + 0.001 * seed,))
        runs.add(f"b{seed}", {"LR": 1e-2}, seed=seed, scenes=(0.4 + 0.001 * seed,))
    for number in range(5):
        runs.add(f"c{number}", {"LR": 0.1 + number}, scenes=(0.3,))
    adjusted = [one.p_adjusted for one in compared(runs)[1] if one.p]
    assert adjusted == [pytest.approx(2 / 70)]


def test_the_only_setting_with_text_is_called_by_its_value(runs):
    runs.add("a", {"NAME": "guided"}, scenes=(0.1,))
    runs.add("b", {"NAME": "unet"}, scenes=(0.2,))
    assert labels(runs) == ["guided", "unet"]
    runs.add("c", {"NAME": "unet", "BASE": 16}, scenes=(0.3,))
    assert labels(runs) == ["guided", "unet", "unet, base 16"]
    runs.add("d", {"NAME": "guided", "BASE": 16}, scenes=(0.4,))
    assert labels(runs)[0] == "guided, base default"  # no value is the usual one


def test_a_setting_that_a_run_lacks_is_named_by_its_default(runs):
    """The config of an older version may lack a key; that of a script is not known."""
    runs.add("a", {"EPOCHS": 3}, scenes=(0.1,))
    runs.add("b", scenes=(0.2,))
    assert labels(runs) == ["epochs 3", f"epochs {defaults().TRAIN.EPOCHS} (default)"]


def test_group_names_are_unique(runs):
    runs.add("a", {"LR": 0.00123}, scenes=(0.1,))
    runs.add("b", {"LR": 0.00124}, scenes=(0.2,))
    assert labels(runs) == ["lr 0.00123", "lr 0.00124"]
    for number in range(2):
        runs.add(f"long{number}", {"LR": "x" * 40 + str(number)}, scenes=(0.3 + number,))
    assert len(set(labels(runs))) == 4
    assert _unique(["a", "a", "a (2)", "a"]) == ["a", "a (2)", "a (2) (2)", "a (3)"]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ((0.9, 0.999), ("0.9", "0.999")),
        (([0.9, 0.999], [0.5, 0.9]), ("[0.9, 0.999]", "[0.5, 0.9]")),
        ((0.125, 12345.67), ("0.125", "12345.67")),
        ((0.030631960008313863, 0.5512345678), ("0.031", "0.55")),
        ((0.9987345678901, 0.030631960008313863), ("0.999", "0.031")),  # it is not 1
        ((0.1 + 0.2, 0.3), ("0.30000000000000004", "0.3")),
    ],
)
def test_a_number_that_was_typed_is_shown_in_full(runs, values, names):
    for number, value in enumerate(values):
        runs.add(f"r{number}", {"MOMENTUM": value}, scenes=(0.1 * (number + 1),))
    assert labels(runs) == [f"momentum {name}" for name in names]


def test_keys_that_end_alike_are_named_in_full(runs):
    runs.add("a", {"X": {"W": 1}, "Y": {"W": 2}}, scenes=(0.1,))
    runs.add("b", {"X": {"W": 3}, "Y": {"W": 4}}, scenes=(0.2,))
    assert labels(runs) == ["train.x.w 1, train.y.w 2", "train.x.w 3, train.y.w 4"]


def test_groups_by_a_named_setting(runs):
    for number, (lr, clip) in enumerate([(1e-3, 1.0), (1e-2, 1.0), (1e-3, 2.0)]):
        runs.add(f"r{number}", {"LR": lr, "CLIP": clip})
    groups = make_groups(collected(runs), TEST, by="TRAIN.CLIP")
    assert sorted(len(group.runs) for group in groups) == [1, 2]


def test_groups_by_a_named_setting_are_of_equal_values_not_of_equal_texts(runs):
    values = [None, "None", 1, 1.0, "1", True, "True", [1, 2], [1.0, 2.0], "[1, 2]"]
    for number, value in enumerate(values):
        runs.add(f"r{number}", {"OPTION": value, "LR": number + 1.0})
    runs.add("absent", {"LR": 0.5})
    groups = make_groups(collected(runs), TEST, by="TRAIN.OPTION")
    found = sorted([run.name for run in group.runs] for group in groups)
    assert found == [
        ["absent"], ["r0"], ["r1"], ["r2", "r3"], ["r4"], ["r5"], ["r6"], ["r7", "r8"], ["r9"],
    ]  # fmt: skip
    assert len({group.label for group in groups}) == len(groups)


def test_missing_and_nan_metrics_count_as_not_measured(runs):
    runs.add("a", {"LR": 1e-3})
    runs.add("b", {"LR": 1e-2}, test={"refined": {"abs_rel": math.nan}})
    runs.add("c", {"LR": 1e-1}, test={"other": 1})
    found = collected(runs)
    assert choose_measure(found) == TEST
    groups = make_groups(found, TEST)
    assert [len(group.scores) for group in groups] == [1, 0, 0]
    runs.add("d", {"LR": 1.0}, test={}, val={"refined": {"abs_rel": 0.2}})
    assert choose_measure(collected(runs)) == Measure("val")


def test_curves_of_different_lengths_and_a_last_line_cut_short(runs):
    folder = runs.add("a", curve=(0.5, 0.4, 0.3))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"phase": "val", "epo')
    runs.add("b", curve=())
    curves = {run.name: run.curve for run in collected(runs)}
    assert curves["a"].epochs == [1, 2, 3]
    assert curves["a"].refined == [0.5, 0.4, 0.3]
    assert curves["b"] is None


def test_of_long_names_that_begin_alike_the_ends_are_shown(runs):
    for number in range(2):
        runs.add(f"r{number}", {"NAME": f"a network with a long name, version {number}"},
                 scenes=(0.1 + number,))  # fmt: skip
    assert labels(runs) == ["...version 0", "...version 1"]


def add_studies(runs, shifts, seeds, scenes=8):
    """Groups `name 0`, `name 1`, ... whose scenes have this shift each."""
    for number, shift in enumerate(shifts):
        for seed in range(seeds):
            values = [0.2 + 0.05 * scene + 0.001 * (scene * seed % 3) for scene in range(scenes)]
            runs.add(f"r{number}-{seed}", {"NAME": f"name {number}"}, seed=seed,
                     scenes=tuple(value + shift for value in values))  # fmt: skip


def test_few_seeds_and_many_scenes_are_compared_by_scene(runs):
    add_studies(runs, [0, 0.02], seeds=1)
    (found,) = compared(runs)[1]
    assert found.verdict == "no conclusion: 1 of at least 3 seeds"
    assert (found.scenes_won, found.scenes, found.scenes_verdict) == (8, 8, "the first is better")
    assert found.scenes_p_adjusted == pytest.approx(2 / 2**8)  # both signs of all eight


@pytest.mark.usefixtures("no_pictures")
def test_copies_of_runs_are_left_out_and_named(runs, tmp_path):
    folders = [runs.add(f"s{seed}", seed=seed) for seed in range(4)]
    for number, folder in enumerate(folders):
        (folder / "weights.sha256").write_text(f"{number % 3:064x}\n")
        shutil.copytree(folder, tmp_path / "backup" / folder.name)
    (tmp_path / "backup" / "s1" / "weights.sha256").write_text("f" * 64)  # by other arithmetic
    (tmp_path / "backup" / "s2" / "weights.sha256").unlink()
    (runs.folder / "s3" / "weights.sha256").unlink()
    found = collect([str(runs.folder), str(tmp_path / "backup")])
    assert sorted(run.name for run in found.runs) == ["s0", "s1", "s1", "s2", "s3"]
    for name, same in (("s0", "weights"), ("s2", "metrics"), ("s3", "metrics")):
        reason = found.left_out[str(tmp_path / "backup" / name)]
        assert f"seed and {same} of {runs.folder / name}, and is no further seed" in reason
    analyze([str(runs.folder), str(tmp_path / "backup")], tmp_path / "report")
    assert "is no further seed" in (tmp_path / "report" / "report.html").read_text()


def test_a_comparison_by_scene_needs_six_scenes(runs):
    add_studies(runs, [0, 0.02], seeds=3, scenes=5)
    (found,) = compared(runs)[1]
    assert found.scenes_p_adjusted is None
    assert found.scenes_verdict == "no conclusion: 5 of at least 6 scenes"


def test_a_difference_in_one_scene_alone_is_not_significant_by_scene(runs):
    scenes = [0.2] * 8
    runs.add("a", {"NAME": "a"}, scenes=tuple(scenes))
    runs.add("b", {"NAME": "b"}, scenes=(0.9, *scenes[1:]))
    (found,) = compared(runs)[1]
    assert found.scenes_verdict == "no significant difference"


def test_with_a_baseline_only_pairs_with_it_are_tested(runs):
    add_studies(runs, [0, 0.02, 0.04], seeds=4)
    groups, all_pairs = compared(runs)
    found = compare_groups(groups, TEST, groups[1])
    assert [(d.first, d.second) for d in found] == [("name 0", "name 1"), ("name 2", "name 1")]
    assert [d.p_adjusted for d in found] == [pytest.approx(2 * 2 / 70)] * 2
    assert len(all_pairs) == 3


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, ""),
        ({"data_digest": "d2"}, " NOT COMPARABLE: different data."),
        ({"scenes": (0.2, 0.3, 0.4)}, " NOT COMPARABLE: different test scenes."),
        ({"test": {"pseudo": {"abs_rel": 0.61}, "refined": {"abs_rel": 0.25}}},
         " NOT COMPARABLE: different pixels of the test scenes."),
    ],
)  # fmt: skip
def test_runs_that_were_measured_on_other_data_or_scenes_are_marked(runs, other, words):
    runs.add("a")
    runs.add("b", {"LR": 1e-2}, **other)
    collection, measure = collect([str(runs.folder / "*")]), TEST
    text = " ".join(captions.facts(collection, make_groups(collection.runs, measure), measure))
    assert words in text
    assert ("NOT COMPARABLE" in text) == bool(words)


def test_every_file_marks_runs_that_were_measured_on_other_data(runs, tmp_path):
    for seed in range(4):
        for number, digest in enumerate(("d1", "d1", "d2")):
            value = 0.1 * (3 - number) + 0.001 * seed
            runs.add(f"{number}-{seed}", {"LR": 10.0**-number}, (value,) * 6, seed,
                     data_digest=digest)  # fmt: skip
    analyze([str(runs.folder)], tmp_path / "out")
    mark = "NOT COMPARABLE: different data"
    for name in ("groups.csv", "scenes.csv"):
        assert {row["note"] for row in csv_rows(tmp_path / "out" / name)} == {mark}, name
    for name in ("tables.md", "tables.tex"):
        text = (tmp_path / "out" / name).read_text()
        assert mark in text and "**" not in text and "textbf" not in text, name
    differences = csv_rows(tmp_path / "out" / "differences.csv")
    found = {(row["first"], row["second"]): row for row in differences}
    other = "no conclusion: measured on different data"
    for pair in (("lr 0.01", "lr 0.1"), ("lr 0.01", "lr 1")):
        row = found[pair]
        assert (row["verdict"], row["p"]) == (other, "")
        assert (row["scenes_verdict"], row["scenes_p_adjusted"]) == (other, "")
    alike = found["lr 0.1", "lr 1"]  # the one test, so that it is adjusted for no other
    assert (alike["verdict"], alike["p_adjusted"]) == ("the first is better", alike["p"])


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        ({"commit": "cd" * 20}, "commit"),
        ({"commit": "ab" * 20, "dirty_digest": "ef" * 32}, "uncommitted changes"),
        ({"commit": "ab" * 20, "started_from": {"path": "a", "sha256": "ef" * 32}},
         "weights of TRAIN.FROM"),
        ({"commit": "ab" * 20, "split_file": {"path": "a", "sha256": "ef" * 32}},
         "file of DATA.SPLIT"),
        ({"commit": "ab" * 20, "processes": 2}, "--processes"),
        ({"commit": "ab" * 20, "variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}},
         "variable ONEDNN_MAX_CPU_ISA"),
        ({"commit": "ab" * 20, "environment": {"NVIDIA_TF32_OVERRIDE": "0"}},
         "variable NVIDIA_TF32_OVERRIDE"),
    ],
)  # fmt: skip
def test_runs_of_other_code_are_no_further_seeds(runs, facts, key):
    for seed in range(3):
        runs.add(f"a{seed}", seed=seed, scenes=(0.2 + 0.01 * seed,))
        other = runs.add(f"b{seed}", seed=seed, scenes=(0.4 + 0.01 * seed,))
        (other / "provenance.json").write_text(json.dumps(facts))
    collection, measure = collect([str(runs.folder)]), TEST
    groups = make_groups(collection.runs, measure)
    assert [len(group.scores) for group in groups] == [3, 3]
    header, _ = run_rows(collection, make_groups(collection.runs, measure, key))
    assert len(set(header)) == len(header)


def summary(runs, groups, seeds):
    """The summary of groups that are far apart, with these seeds each."""
    for group in range(groups):
        for seed in range(seeds):
            score = 0.1 * (1 + group) + 0.0001 * seed
            runs.add(f"{group}-{seed}", {"LR": 10.0**-group}, (score, score), seed)
    return summarized(runs)


def summarized(runs):
    collection, measure = collect([str(runs.folder)]), TEST
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


@pytest.mark.parametrize(("groups", "seeds"), [(2, 1), (2, 2), (1, 2)])
def test_it_names_them_without_any_test_too_but_for_a_single_group(runs, groups, seeds):
    said = " ".join(summary(runs, groups, seeds))
    assert ("needs 4 seeds per group for one comparison" in said) == (groups > 1)
    assert ("seeds per group" in said) == (groups > 1)


def test_archived_runs_count_and_are_named(runs, capsys):
    lines = summary(runs, 2, 3)
    assert not any("rchived" in line for line in lines)
    names = [str(runs.folder / name) for name in ("0-0", "1-1")]
    assert main(["runs", *names, "--archive"]) == 0
    (runs.folder / "0-1" / ".labels.json").write_text("{")  # damaged
    found = summarized(runs)
    assert [one for one in found if one not in lines] == [
        "Archived: 2 runs, counted like all others."
    ]
    assert len(found) == len(lines) + 1


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        (3, "do not meet, the line is its longest run"),
        (1, "its values are interpolated. A line ends where the first run of its group ends."),
    ],
)
def test_a_group_whose_runs_have_other_steps_says_what_is_drawn(runs, apart, said):
    for seed in range(3):
        folder = runs.add(f"a{seed}", seed=seed)
        depths = {"refined": {"abs_rel": 0.5}, "pseudo": {"abs_rel": 0.6}}
        epochs = range(apart * seed, apart * seed + 3)
        rows = [{"phase": "val", "step": one, "epoch": one, **depths} for one in epochs]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    groups, measure = make_groups(collected(runs), TEST), TEST
    assert said in " ".join(captions.legend(groups, measure))
    assert said not in " ".join(captions.legend([], measure))
