"""Comparing by any metric: our own runs too, several metrics, mixed and damaged runs."""

import json

import pytest

from tests.tables import csv_rows
from zoerefine.api import load_runs
from zoerefine.base.errors import UserError
from zoerefine.base.metric_direction import HIGHER_IS_BETTER, is_maximized
from zoerefine.base.registries import METRICS
from zoerefine.base.run_dir import RunDir
from zoerefine.cli import main
from zoerefine.lab.analysis.analyze import analyze
from zoerefine.lab.analysis.diff import diff_runs
from zoerefine.lab.analysis.groups import Measure, make_groups
from zoerefine.lab.analysis.pictures.overview import overview_figure
from zoerefine.lab.analysis.pictures.style import style
from zoerefine.lab.analysis.report.tables import difference_rows
from zoerefine.lab.analysis.statistics.comparisons import MIXED, compare_groups
from zoerefine.lab.launch.included import Included, bases_of
from zoerefine.lab.launch.record.show import show_run
from zoerefine.lab.listing.index import RunIndex
from zoerefine.lab.listing.selection import Selection, select
from zoerefine.lab.runs.collect import collect
from zoerefine.lab.runs.filter import parse_filter
from zoerefine.lab.runs.read import MOST_METRICS
from zoerefine.lab.runs.record import Collection

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def foreign(tmp_path):
    """Adds a run of another repository's script: foreign(name, config, rows)."""

    def add(name, config, rows, **facts):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        recorded = {"commit": "cd" * 20, "module": "train.py", "input": "input.yaml"} | facts
        (folder / "provenance.json").write_text(json.dumps(recorded))
        (folder / "status.json").write_text('{"state": "finished"}')
        (folder / "input.yaml").write_text(json.dumps(config))
        lines = [json.dumps({"step": step} | row) for step, row in enumerate(rows)]
        (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return folder

    return add


def groups_of(out):
    return [row["group"] for row in csv_rows(out / "groups.csv")]


def compared(folder, metric, maximize=False):
    """The names of the groups, the best first, and the rows of differences.csv."""
    measure = Measure("", metric, maximize=maximize)
    groups = make_groups(collect([str(folder)], metrics=[metric]).runs, measure)
    header, rows = difference_rows(compare_groups(groups, measure))
    names = [group.label for group in groups]
    return names, [dict(zip(header, row, strict=True)) for row in rows]


def test_our_own_runs_are_compared_by_any_of_their_metrics(runs):
    runs.add("a", {"LR": 1e-3}, scenes=(0.1,), parameters=2000)
    runs.add("b", {"LR": 1e-2}, scenes=(0.2,), parameters=1000)
    for name, best in (("test.refined.abs_rel", "lr 0.001"), ("parameters", "lr 0.01")):
        assert compared(runs.folder, name)[0][0] == best


def test_several_metrics_have_a_folder_each(foreign, tmp_path):
    foreign("a", {"LR": 1}, [{"val/acc": 0.5, "val/f1": 0.9}])
    foreign("b", {"LR": 2}, [{"val/acc": 0.6, "val/f1": 0.8}])
    metrics = ["val/acc", "val/f1"]
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=metrics, maximize=True)
    assert groups_of(tmp_path / "out" / "val_acc") == ["lr 2", "lr 1"]
    assert groups_of(tmp_path / "out" / "val_f1") == ["lr 1", "lr 2"]


def test_the_only_metric_is_taken_and_values_that_are_not_finite_have_no_place(foreign, tmp_path):
    foreign("a", {"LR": 1}, [{"loss": 0.5}, {"loss": float("nan")}])
    foreign("b", {"LR": 2}, [{"loss": 0.5}, {"loss": 0.25}])
    analyze([str(tmp_path / "runs")], tmp_path / "out")
    assert groups_of(tmp_path / "out") == ["lr 2", "lr 1"]
    assert [row["scored"] for row in csv_rows(tmp_path / "out" / "groups.csv")] == ["1", "0"]


def test_seeds_that_are_no_integers_are_seeds_too(foreign, tmp_path, capsys):
    for number, seed in enumerate(("1", "2", 3.5, [4, 5])):
        foreign(f"a{number}", {"LR": 1, "SEED": seed}, [{"acc": 0.5}])
    analyze([str(tmp_path / "runs")], tmp_path / "out")
    same = "4 runs have exactly the same metrics; does the script read SEED?"
    assert same in capsys.readouterr().err
    rows = csv_rows(tmp_path / "out" / "runs.csv")
    assert [row["seed"] for row in rows] == ["1", "2", "3.5", "[4, 5]"]


@pytest.mark.parametrize("other", ["gpu_mem", "cpu_percent", "system/power_w"])
def test_seeds_that_change_nothing_count_once_also_where_the_machine_was_measured(
    foreign, tmp_path, capsys, other
):
    for seed in range(4):
        for lr in (0.1, 0.2):
            rows = [{"acc": 0.5 + lr + 0.01 * step, other: seed + 0.5} for step in range(3)]
            foreign(f"lr{lr}-{seed}", {"LR": lr, "SEED": seed}, rows)
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["acc"], maximize=True)
    same = "4 runs have exactly the same values of acc; does the script read SEED?"
    assert same in capsys.readouterr().err
    assert [row["scored"] for row in csv_rows(tmp_path / "out" / "groups.csv")] == ["1", "1"]


@pytest.mark.parametrize("name", ["rng_seed", "seed_everything", "trainer/manual_seed"])
def test_usual_names_of_seeds_are_known(foreign, tmp_path, name):
    for seed in range(3):
        foreign(f"a{seed}", {"lr": 1, name: seed}, [{"acc": 0.1 * seed}])
    (group,) = make_groups(collect([str(tmp_path / "runs")], metrics=["acc"]).runs, ACC)
    assert len(group.scores) == 3


def test_a_key_that_is_called_seed_is_the_seed(foreign, tmp_path, capsys):
    for number in range(4):
        config = {"lr": 1 + number % 2, "train": {"seed": number // 2}, "split_seed": 7}
        foreign(f"a{number}", config, [{"acc": 0.1 * number}])
    analyze([str(tmp_path / "runs")], tmp_path / "out")
    assert groups_of(tmp_path / "out") == ["lr 1", "lr 2"]
    assert {row["seed"] for row in csv_rows(tmp_path / "out" / "runs.csv")} == {"0", "1"}
    words = (str(tmp_path / "runs"), "--where", "train.seed==1 and seed==1")
    assert main(["runs", *words]) == 0 and "runs/a2\n" in capsys.readouterr().out
    kept = collect(list(words[:1]), parse_filter(words[2])).runs
    assert [run.name for run in kept] == ["a2", "a3"]
    text = diff_runs(*(str(tmp_path / "runs" / name) for name in ("a0", "a3")))
    assert "train.seed: 0 -> 1" in text and "lr: 1 -> 2" in text


def test_a_mean_by_one_key_over_several_settings_is_not_one_over_seeds(foreign, tmp_path, capsys):
    for number in range(12):
        seed, lr, wd = number % 3, 1 + number // 6, number // 3 % 2
        config = {"lr": lr, "wd": wd, "seed": seed}
        foreign(f"a{number}", config, [{"loss": lr + wd + 0.1 * seed}])
    runs, out = str(tmp_path / "runs"), tmp_path / "out"
    for by, said, column in (
        ("lr", "lr 1, loss 1.6000 (mean over 6 runs of several settings; lower", "runs"),
        (None, "lr 1, wd 0, loss 1.1000 (mean over 3 seeds; lower is better)", "seeds"),
    ):
        analyze([runs], out, by=by)
        answer = capsys.readouterr().err
        assert said in answer
        assert ("lr 2: its mean is over runs of several settings." in answer) == bool(by)
        table = (out / "tables.md").read_text().replace("\\", "")
        assert table.startswith(f"| group | {column} |") and f"from 3 {column} on" in table
        page = (out / "report.html").read_text()
        assert all(f"mean over {column}" in text for text in (table, page))


ALIKE = {  # texts of a setting that are equal, and what tells the values apart
    "null": ({"opt": None}, "opt not set", "null"),
    "text": ({"opt": "None"}, "opt None", '"None"'),
    "absent": ({"other": 0}, "opt default", "no such key"),
    "1": ({"opt": 1}, "opt 1", "1"),
    "text of 1": ({"opt": "1"}, 'opt "1"', '"1"'),
    "1.0": ({"opt": 1.0}, "opt 1.0", "1.0"),
    "true": ({"opt": True}, "opt true", "true"),
    "text of true": ({"opt": "True"}, 'opt "True"', '"True"'),
    "list": ({"opt": [1]}, "opt [1]", "[1]"),
    "list of texts": ({"opt": ["1"]}, 'opt ["1"]', '["1"]'),
}


def test_values_with_the_same_text_are_other_settings(foreign, tmp_path):
    for number, (name, (config, _, _)) in enumerate(ALIKE.items()):
        foreign(name, {"other": 0} | config, [{"acc": 0.1 * number}])
    analyze([str(tmp_path / "runs")], tmp_path / "out")
    assert groups_of(tmp_path / "out") == [label for _, label, _ in ALIKE.values()]
    for one, other in (("null", "text"), ("null", "absent"), ("text", "absent"),
                       ("1", "text of 1"), ("true", "text of true")):  # fmt: skip
        text = diff_runs(*(str(tmp_path / "runs" / name) for name in (one, other)))
        line = f"opt: {ALIKE[one][2]} -> {ALIKE[other][2]}"
        assert line in text, text
        first, second = text.splitlines()[:2]
        assert ALIKE[one][1] in first and ALIKE[other][1] in second


@pytest.mark.parametrize("lost", [{"acc": float("nan")}, {"acc": 1e200}, {"other": 1.0}])
def test_a_group_of_which_finished_runs_have_no_finite_value_does_not_win(
    foreign, tmp_path, capsys, lost
):
    for seed in range(8):
        foreign(f"a{seed}", {"LR": 0.1, "SEED": seed}, [{"acc": 0.1 + 0.001 * seed}])
        value = {"acc": 0.2 + 0.001 * seed} if seed % 2 else lost
        foreign(f"b{seed}", {"LR": 0.2, "SEED": seed}, [value])
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["acc"], maximize=True)
    answer = capsys.readouterr().err
    assert "Best: lr 0.1" in answer
    words = "4 of 8 finished runs have no finite acc"
    left_out = f"lr 0.2: {words}; its mean is of the others, and nothing is concluded from it."
    assert left_out in answer
    rows = csv_rows(tmp_path / "out" / "groups.csv")
    assert [(row["group"], row["note"]) for row in rows] == [("lr 0.1", ""), ("lr 0.2", words)]
    (row,) = csv_rows(tmp_path / "out" / "differences.csv")
    verdict = "no conclusion: not every run of a group has its final value"
    assert (row["verdict"], row["p"]) == (verdict, "")
    assert (row["scenes"], row["scenes_won"]) == ("", "")  # it is no metric by scene
    assert "4 of 8" in (tmp_path / "out" / "tables.md").read_text()
    assert words in (tmp_path / "out" / "report.html").read_text()


def test_a_group_whose_only_curve_is_of_a_run_that_failed_is_drawn(foreign, tmp_path):
    for seed in range(2):
        foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"v": float("nan")}, {"v": float("nan")}])
    failed = foreign("a2", {"LR": 1, "SEED": 2}, [{"v": 1.0}, {"v": 2.0}])
    (failed / "status.json").write_text(json.dumps({"state": "failed"}))
    runs, measure = collect([str(tmp_path / "runs")], metrics=["v"]).runs, Measure(metric="v")
    with style():
        figure = overview_figure(Collection(runs), make_groups(runs, measure), measure)
    assert not any("while training" in axis.get_title("left") for axis in figure.axes)


def test_a_metric_with_the_name_of_a_setting_replaces_it_nowhere(foreign, tmp_path, capsys):
    for number, lr in enumerate((0.1, 0.2, 0.5)):
        foreign(f"a/r{number}", {"lr": lr, "note": number}, [{"lr": lr / 2, "acc": lr}, {"lr": 0}])
    rows = csv_rows_of(tmp_path / "runs/a", tmp_path / "out")
    table = load_runs(tmp_path / "runs/a/*")
    for found in (rows, table):
        assert [float(row["lr"]) for row in found] == [0.1, 0.2, 0.5]
        assert [float(row["lr (metric)"]) for row in found] == [0, 0, 0]
        assert [int(row["note (config)"]) for row in found] == [0, 1, 2]
        assert [row["note"] for row in found] == ["", "", ""]
    page = (tmp_path / "out" / "report.html").read_text()
    assert '"runs": {"header": ["run", "group", "lr (metric)"' in page
    capsys.readouterr()
    for words, expected in (
        (["--where", "lr<0.05"], []),
        (["--where", "lr>0.15 and acc<0.4"], ["a/r1"]),
        (["--sort", "lr", "--reverse"], ["a/r2", "a/r1", "a/r0"]),
    ):
        assert main(["runs", str(tmp_path / "runs"), *words]) == 0
        lines = capsys.readouterr().out.splitlines()[1:]
        assert [line[49:].split()[0] for line in lines] == expected


def csv_rows_of(runs, out):
    """The rows of runs.csv of an analysis by the metric `lr`."""
    analyze([str(runs)], out, metrics=["lr"])
    return csv_rows(out / "runs.csv")


def test_every_metric_of_a_run_counts_however_many_it_has(foreign, tmp_path, capsys):
    many = {f"m{number:03d}": number for number in range(250)}
    for seed in range(4):
        rows = [{"acc": 0.1} | many] if seed < 2 else [many | {"acc": 0.2}]
        foreign(f"a/r{seed}", {"SEED": seed}, rows)
    analyze([str(tmp_path / "runs/a")], tmp_path / "out", metrics=["acc"])
    (row,) = csv_rows(tmp_path / "out" / "groups.csv")
    assert (row["scored"], float(row["mean"])) == ("4", pytest.approx(0.15))
    capsys.readouterr()
    assert main(["runs", str(tmp_path / "runs"), "--where", "m249>3 and acc>0.15"]) == 0
    assert "2 runs" in capsys.readouterr().err


def test_a_metric_beyond_those_that_are_kept_is_found_by_name(foreign, tmp_path):
    row = {f"m{number:04d}": number for number in range(MOST_METRICS)} | {"acc": 0.5}
    foreign("a", {}, [row])
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["acc"])
    (row,) = csv_rows(tmp_path / "out" / "runs.csv")
    assert row["acc"] == "0.5"
    assert row["note"] == "1 metric left out: --metric NAME compares any"


def test_verdicts_follow_the_direction(foreign, tmp_path):
    for seed in range(5):
        foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"acc": 0.5 + seed / 100}])
        foreign(f"b{seed}", {"LR": 2, "SEED": seed}, [{"acc": 0.8 + seed / 100}])
    for maximize, first in ((True, "lr 2"), (False, "lr 1")):
        names, (row,) = compared(tmp_path / "runs", "acc", maximize)
        assert names[0] == row["first"] == first
        assert (row["verdict"], float(row["probability"])) == ("the first is better", 1)


@pytest.mark.parametrize("scenes", ["val.", "test.", "val.scenes.a.", "test_scenes.a.b."])
def test_the_direction_of_our_own_metrics_is_known_by_scene_too(scenes):
    assert is_maximized(f"{scenes}refined.delta1", False)
    assert not is_maximized(f"{scenes}refined.abs_rel", False)
    with pytest.raises(UserError, match=r"is best at 0\.90"):
        is_maximized(f"{scenes}refined.coverage90", False)


def test_metrics_that_are_nearly_zero_are_printed_with_an_exponent(foreign, tmp_path, capsys):
    for seed in range(3):
        foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"mse": 3e-6 + seed * 1e-8}])
        foreign(f"b{seed}", {"LR": 2, "SEED": seed}, [{"mse": 4e-6 + seed * 1e-8}])
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["mse"])
    said = capsys.readouterr().err
    assert "mse 3.01e-06 " in said and "difference of the means -1.00e-06, 95% inter" in said
    table = (tmp_path / "out/tables.md").read_text().replace("\\", "")
    assert "3.01e-06 \N{PLUS-MINUS SIGN} 2.48e-08" in table
    assert "\N{MINUS SIGN}1.00e-06 [" in table or "+1.00e-06 [" in table
    assert main(["diff", str(tmp_path / "runs/a0"), str(tmp_path / "runs/b0")]) == 0
    assert "mse: 3.0000e-06 -> 4.0000e-06 (+1.0000e-06)" in capsys.readouterr().out


def test_small_differences_of_larger_metrics_have_decimals_as_they_do(foreign, tmp_path, capsys):
    for seed in range(3):
        foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"mse": 0.2 + seed * 1e-4}])
        foreign(f"b{seed}", {"LR": 2, "SEED": seed}, [{"mse": 0.2005 + seed * 1e-4}])
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["mse"])
    assert "difference of the means -0.0005, 95% interval -0.0007 to" in capsys.readouterr().err
    table = (tmp_path / "out/tables.md").read_text().replace("\\", "")
    assert "0.2001 \N{PLUS-MINUS SIGN} 0.0002" in table
    assert "0.0005 [" in table
    for seed in range(3):
        foreign(f"c{seed}", {"LR": 3, "SEED": seed}, [{"mse": 0.2 + seed * 1e-7}])
    assert main(["analyze", str(tmp_path / "runs"), "--metric", "mse", "--out", str(tmp_path)]) == 0
    table = (tmp_path / "tables.md").read_text().replace("\\", "")
    assert "0.2000001 \N{PLUS-MINUS SIGN} 0.0000002" in table
    assert main(["diff", str(tmp_path / "runs/c0"), str(tmp_path / "runs/c1")]) == 0
    assert "mse: 0.2000000 -> 0.2000001 (+0.0000001)" in capsys.readouterr().out


def test_overrides_arguments_and_seed_key_are_settings(foreign, tmp_path):
    config = {"A": {"B": 1, "C": 2}, "seed": 3}
    foreign("a", config, [{"x": 1}], overrides=["A.B", "1e-2"], seed_key="seed",
            arguments=["--deterministic"])  # fmt: skip
    foreign("b", config, [{"x": 1}], overrides=["A.B", "7"], overrides_in="file")
    first, second = collect([str(tmp_path / "runs")]).runs
    assert first.seed == 3 and first.settings["A.B"] == 0.01 and "seed" not in first.settings
    assert first.settings["arguments"] == "--deterministic"
    assert second.settings["A.B"] == 1 and second.seed == 3


@pytest.mark.parametrize(
    ("one", "other"), [("1.1", "1.10"), ("10", "010"), ("16", "0x10"), ("1.0", "1.00")]
)
def test_words_that_a_script_may_tell_apart_are_two_settings(foreign, tmp_path, one, other):
    """`--version 1.10` is no further seed of 1.1; where the config has a number, both are one."""
    for seed in range(2):
        for word in (one, other):
            words = {"overrides": ["+v", word, "lr", word, "seed", str(seed)], "seed_key": "+seed"}
            foreign(f"{word}-{seed}", {"lr": 0.5}, [{"acc": len(word) + seed}], **words)
    runs = collect([str(tmp_path / "runs")], metrics=["acc"]).runs
    groups = make_groups(runs, Measure("", "acc"))
    labels = [f"v {one.removesuffix('.0')}", f"v {other}"]
    assert [(group.label, len(group.runs)) for group in groups] == [(name, 2) for name in labels]
    assert sum(parse_filter(f"v=='{other}'")(run.settings) for run in runs) >= 2
    assert sum(parse_filter(f"v=={float(one)}")(run.settings) for run in runs) >= 2
    assert {run.settings["lr"] for run in runs} == {float(one)}


ACC = Measure("", "acc")
JOB = {"seed_key": "SEED", "again": 0}


@pytest.mark.parametrize("seeds", [{"SEED": 0}, {}])
def test_nothing_is_concluded_from_different_jobs_of_one_setting(foreign, tmp_path, seeds):
    for again in range(3):
        for rate in (1, 2):
            facts = JOB | {"identity": f"{rate}-{again}", "again": again}
            foreign(f"{rate}-{again}", seeds | {"LR": rate}, [{"v": rate + again / 10}], **facts)
    foreign("other", seeds | {"LR": 1}, [{"v": 0.1}], **JOB, identity="x")
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["v"])
    assert groups_of(tmp_path / "out") == ["lr 2", "lr 1"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "lr 1: 2 runs of one setting and seed are of different jobs" in page
    assert "lr 1: 3 runs with the seed" not in page
    (row,) = csv_rows(tmp_path / "out" / "differences.csv")
    assert row["verdict"] == MIXED


def test_a_word_in_the_place_of_a_text_of_the_config_is_a_text(foreign, tmp_path):
    for name, word in (("a", "1.1"), ("b", "1.10"), ("c", None)):
        words = {"overrides": ["v", word]} if word else {}
        foreign(name, {"v": "1.1"}, [{"acc": len(word or "1.1")}], **words)
    found = collect([str(tmp_path / "runs")], metrics=["acc"])
    assert {run.name: run.settings["v"] for run in found.runs} == {"a": "1.1", "b": "1.10"}
    assert len(found.left_out) == 1  # c is a copy of a


def test_a_copy_whose_settings_are_equal_numbers_is_no_further_seed(foreign, tmp_path):
    first = foreign("a", {"LR": 1, "SEED": 0}, [{"acc": 0.5}])
    foreign("b", {"LR": 1.0, "SEED": 0}, [{"acc": 0.5}])
    foreign("c", {"LR": True, "SEED": 0}, [{"acc": 0.5}])
    found = collect([str(tmp_path / "runs")], metrics=["acc"])
    assert [run.name for run in found.runs] == ["a", "c"]
    assert f"metrics of {first}" in found.left_out[str(tmp_path / "runs" / "b")]


def test_hyperparameters_stand_for_a_config_that_cannot_be_read(foreign, tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="torch is not installed")

    folder = foreign("a", {}, [], input="input.py", input_digest="12345678")
    (folder / "metrics.jsonl").unlink()
    with tensorboard.SummaryWriter(str(folder / "tb")) as writer:
        writer.add_hparams({"lr": 0.25}, {"acc": 0.5})
    (run,) = collect([str(tmp_path / "runs")]).runs
    assert run.settings["lr"] == 0.25 and run.finals["acc"] == 0.5


def test_runs_without_absrel_are_left_out_with_the_reason(runs, foreign, tmp_path):
    runs.add("own")
    foreign("other", {"LR": 1}, [{"acc": 0.5}])
    collection, _ = analyze([str(tmp_path / "runs")], tmp_path / "out")
    assert [run.name for run in collection.runs] == ["own"]
    (reason,) = collection.left_out.values()
    assert "--metric NAME compares it" in reason


def test_runs_without_metrics_are_answered_with_what_is_missing(foreign, tmp_path):
    foreign("a", {"LR": 1}, [])
    with pytest.raises(UserError, match="no run has a metric: none left metrics"):
        analyze([str(tmp_path / "runs")], tmp_path / "out")


@pytest.mark.parametrize("values", [[-3.0, -2.0], [0.0, 0.0], [1e9, -1e-9], [-5.0]])
def test_any_values_are_drawn(foreign, tmp_path, values):
    for number, value in enumerate(values):
        foreign(f"r{number}", {"LR": number}, [{"m": value}, {"m": value}])
    collection = collect([str(tmp_path / "runs")], metrics=["m"])
    measure = Measure("", "m", maximize=True)
    with style():
        figure = overview_figure(collection, make_groups(collection.runs, measure), measure)
    texts = [axis.get_title(loc="left") for axis in figure.axes]
    assert texts[:2] == ["m while training", "Final m"]


def test_the_table_names_damaged_logs_and_has_no_seed_that_is_unknown_and_no_depth(
    foreign, tmp_path
):
    folder = foreign("a", {"LR": 1}, [{"acc": 0.5}], hash_seed=0, seed_known=False)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write("{not json}\n")
    collection, _ = analyze([str(folder)], tmp_path / "out")
    assert collection.runs[0].faults == ["metrics.jsonl: line 2 is not a JSON object"]
    (row,) = csv_rows(tmp_path / "out" / "runs.csv")
    assert "line 2 is not a JSON object" in str(row.values())
    assert (row["acc"], row["seed"]) == ("0.5", "")
    assert not any("abs_rel" in name for name in row)
    assert "seed  " not in show_run(RunDir(folder))


def test_show_needs_only_provenance(foreign):
    page = show_run(RunDir(foreign("a", {"LR": 1}, [{"acc": 0.25}, {"acc": 0.5}])))
    assert "acc" in page and "0.5" in page and "(from metrics.jsonl)" in page
    assert "launched with" not in page


def test_diff_names_left_files_that_differ(foreign):
    first, second = foreign("a", {"LR": 1}, []), foreign("b", {"LR": 1}, [])
    for folder, digest in ((first, "11"), (second, "22")):
        files = [{"path": "model.pt", "bytes": 1, "sha256": digest * 32},
                 {"path": "same.txt", "bytes": 1, "sha256": "33" * 32}]  # fmt: skip
        (folder / "left.json").write_text(json.dumps({"schema": 1, "files": files}))
    text = diff_runs(str(first), str(second))
    assert "left files:\n  1 of 2 left files are identical" in text and "weights" not in text
    assert "model.pt: 111111111111 -> 222222222222" in text


def test_a_reproduction_is_no_further_seed(foreign):
    first = foreign("a", {"LR": 1}, [{"acc": 0.5}], hash_seed=0)
    foreign("a-again1", {"LR": 1}, [{"acc": 0.5}], hash_seed=0)
    foreign("b-again1", {"LR": 1}, [{"acc": 0.7}], hash_seed=1)  # its first run is elsewhere
    found = collect([str(first.parent)], metrics=["acc"])
    assert [run.name for run in found.runs] == ["a", "b-again1"]
    assert found.left_out == {f"{first}-again1": "repeats a, and is no further seed"}


def test_a_copy_is_no_further_seed(foreign):
    first = foreign("a", {"LR": 1, "SEED": 0}, [{"acc": 0.5, "loss": 1.25}])
    foreign("a-backup", {"LR": 1, "SEED": 0}, [{"acc": 0.5, "loss": 1.25}])
    foreign("b", {"LR": 1, "SEED": 1}, [{"acc": 0.5, "loss": 1.25}])
    foreign("c", {"LR": 1, "SEED": 0}, [{"acc": 0.5, "loss": 1.5}])  # as by --again
    foreign("d", {"LR": 1, "SEED": 0}, [])
    foreign("e", {"LR": 1, "SEED": 0}, [])  # nothing says that they are the same
    found = collect([str(first.parent)], metrics=["acc"])
    assert [run.name for run in found.runs] == ["a", "b", "c", "d", "e"]
    reason = f"has the commit, config, seed and metrics of {first}, and is no further seed"
    assert found.left_out == {f"{first}-backup": reason}


def test_what_is_no_run_is_told_what_a_run_has(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=r"it has no provenance\.json"):
        diff_runs(str(tmp_path / "folder"), str(tmp_path / "folder"))
    with pytest.raises(UserError, match=r"no folder there has a provenance\.json"):
        analyze([str(tmp_path / "folder")], tmp_path / "out")


def test_our_own_training_called_by_a_script_is_compared_by_absrel(runs, tmp_path):
    folder = runs.add("a")
    recorded = json.loads((folder / "provenance.json").read_text())
    recorded |= {"module": "platform/search.py", "config_digest": "ef" * 32}
    (folder / "provenance.json").write_text(json.dumps(recorded))
    analyze([str(runs.folder)], tmp_path / "out")
    assert groups_of(tmp_path / "out")


def test_seeds_that_change_nothing_count_as_one(foreign, tmp_path):
    for seed in (0, 1, 2):
        foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"acc": 0.5}])
        foreign(f"b{seed}", {"LR": 2, "SEED": seed}, [{"acc": 0.5 + seed / 10}])
    analyze([str(tmp_path / "runs")], tmp_path / "out")
    rows = {row["group"]: row for row in csv_rows(tmp_path / "out" / "groups.csv")}
    assert (rows["lr 1"]["scored"], rows["lr 1"]["low"]) == ("1", "")
    assert rows["lr 2"]["scored"] == "3"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "lr 1: 3 runs have exactly the same metrics; does the script read SEED?" in page


@pytest.mark.parametrize("options", [("cwd", "caller"), ("environment_kind", "venv")])
def test_jobs_of_another_folder_or_environment_are_another_setting(foreign, tmp_path, options):
    name, other = options
    usual = {"cwd": "workspace", "environment_kind": "current"}
    for number, facts in enumerate((usual, usual | {name: other})):
        foreign(f"a{number}", {"lr": 1, "SEED": 0}, [{"loss": 1 + number}], **facts)
    assert len(compared(tmp_path / "runs", "loss")[0]) == 2


@pytest.mark.parametrize("place", ["config", "included"])
def test_a_switch_by_any_word_is_one_setting(foreign, tmp_path, place):
    """Scripts read `augment: no` with PyYAML, for which it is false. A quoted "no" is a text."""
    ways = [("no", []), ("off", []), ("false", []), ("no", ["augment", "false"]),
            ("yes", ["augment", "no"]), ("False", ["augment", "off"]), ('"no"', [])]  # fmt: skip
    for number, (value, words) in enumerate(ways):
        text = f"augment: {value}\n"
        for seed in (0, 1):
            folder = foreign(f"{number}-{seed}", {}, [{"acc": number + seed}],
                             overrides=[*words, "SEED", str(seed)])  # fmt: skip
            (folder / "input.yaml").write_text(text if place == "config" else "_base_: base.yaml\n")
            if place == "included":
                tree = bases_of("a.yaml", b"_base_: base.yaml", {"base.yaml": text.encode()})
                Included("a.yaml", tree=tree).save(folder)
    runs = collect([str(tmp_path / "runs")], metrics=["acc"]).runs
    groups = make_groups(runs, Measure("", "acc"))
    found = {group.runs[0].settings["augment"]: len(group.runs) for group in groups}
    assert found == {False: 12, "no": 2}


def test_option_words_that_are_spelled_otherwise_are_other_settings(foreign, tmp_path):
    words = ("True", "true", "TRUE", "null", "~", "Null")
    for number, word in enumerate(words):
        foreign(f"a{number}", {}, [{"loss": number}], overrides=["amp", word, "SEED", "0"])
    assert len(compared(tmp_path / "runs", "loss")[0]) == len(words)
    found = collect([str(tmp_path / "runs")], parse_filter("amp==True")).runs
    assert [run.name for run in found] == ["a0", "a1", "a2"]


def test_seeds_that_failed_are_missing_in_a_mean(foreign, tmp_path):
    """A training that stops at a NaN ends so; a seed that was repeated since is not missing."""
    for seed in range(4):
        foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"v": 2.0 + seed / 10}])
        folders = [foreign(f"b{seed}", {"LR": 2, "SEED": seed}, [{"v": 1.0 + seed / 10}])]
        folders.append(foreign(f"c{seed}", {"LR": 3, "SEED": seed}, [{"v": 3.0 + seed / 10}]))
        for folder in folders if seed else ():
            (folder / "status.json").write_text('{"state": "failed", "reason": "not finite"}')
        if seed:
            foreign(f"c{seed}-run1", {"LR": 3, "SEED": seed}, [{"v": 3.1 + seed / 10}])
    names, rows = compared(tmp_path / "runs", "v")
    assert names == ["lr 1", "lr 3", "lr 2"]
    unlike = {row["second"]: row["verdict"].startswith("no conclusion") for row in rows}
    assert unlike == {"lr 3": False, "lr 2": True}
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["v"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "lr 2: 3 of 4 runs failed; its mean is of the others" in page
    assert page.count("runs failed") == page.count("3 of 4 runs failed")


@pytest.mark.parametrize(
    ("name", "maximize", "line"),
    [
        ("val_acc", False, "the lowest val_acc counts as the best: give --maximize"),
        ("testAUC", False, "the lowest testAUC counts as the best: give --maximize"),
        ("meanIoU", False, "the lowest meanIoU counts as the best: give --maximize"),
        ("valTop5", False, "the lowest valTop5 counts as the best: give --maximize"),
        ("brier_score", False, ""),
        ("test/mIoU", False, "the lowest test/mIoU counts"),
        ("acc@1", False, "the lowest acc@1 counts"),
        ("val_loss", True, "the highest val_loss counts as the best, by --maximize"),
        ("val_acc", True, ""),
        ("val_loss", False, ""),
        ("speed", True, ""),
        ("map_loss", False, ""),
        ("val.refined.boundary_f1", False, ""),  # one of ours: the highest is the best
    ],
)
def test_a_direction_that_the_name_contradicts_is_named(
    foreign, tmp_path, capsys, name, maximize, line
):
    foreign("a", {"LR": 1}, [{name: 0.5}])
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=[name], maximize=maximize)
    answer = capsys.readouterr().err
    assert (line in answer) if line else "counts as the best" not in answer


def test_a_run_without_a_seed_is_no_further_seed_beside_others(foreign, tmp_path):
    """As the first try of a script whose default is seed 0."""
    foreign("first", {"LR": 1}, [{"v": 1.0}])
    for seed in range(3):
        foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"v": 1.0 + seed}])
        foreign(f"b{seed}", {"LR": 2}, [{"v": 5.0 + seed}])  # nobody knows theirs
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["v"])
    rows = {row["group"]: row for row in csv_rows(tmp_path / "out" / "groups.csv")}
    assert [rows["lr 1"][key] for key in ("runs", "scored", "mean")] == ["4", "3", "2.0"]
    assert rows["lr 2"]["scored"] == "3"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "lr 1: 1 run without a seed left out" in page


def test_tries_without_a_seed_by_several_jobs_are_no_runs_of_one_seed(foreign, tmp_path):
    for seed in range(3):
        foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"v": 1.0 + seed}])
    for number in range(2):
        foreign(f"try{number}", {"LR": 1}, [{"v": 1.5 + number}], identity=str(number))
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["v"])
    assert "| 5 runs | 3 |" in (tmp_path / "out" / "tables.md").read_text()


def test_seeds_with_other_packages_are_named(foreign, tmp_path):
    """As after an upgrade of torch between two launches."""
    for seed, version in enumerate(("2.12.0", "2.12.0", "2.13.0")):
        facts = {"environment_digest": version}
        run = foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"v": seed}], **facts)
        (run / "environment.txt").write_text(f"numpy==2.0\ntorch=={version}\n")
        foreign(f"b{seed}", {"LR": 2, "SEED": seed}, [{"v": seed}], environment_digest="same")
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["v"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "lr 1: its runs had 2 different sets of packages (torch==2.12.0, torch==2.13.0)" in page
    assert "lr 2: its runs" not in page


def test_a_repetition_with_other_numbers_is_no_further_seed(foreign, tmp_path):
    """As by `--again` of a job that is not deterministic: the last one counts."""
    for again in range(4):
        foreign(f"a-run{again + 7}", {"LR": 1, "SEED": 7}, [{"acc": 0}, {"acc": 0.5 + again / 10}])
        foreign(f"b{again}", {"LR": 2}, [{"acc": 0.5 + again / 10}])  # nothing says that they are
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["acc"], maximize=True)
    rows = {row["group"]: row for row in csv_rows(tmp_path / "out" / "groups.csv")}
    assert (rows["lr 1"]["scored"], rows["lr 1"]["mean"]) == ("1", "0.8")
    measure = Measure(metric="acc")
    (group,) = make_groups(collect([str(tmp_path / "runs/a-run*")], metrics=["acc"]).runs, measure)
    with style():
        curves = overview_figure(Collection(group.runs), [group], measure).axes[0]
    assert [list(line.get_ydata()) for line in curves.lines] == [[0, 0.8]]
    assert rows["lr 2"]["scored"] == "4"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "lr 1: 3 runs with the seed of a later one left out: a repetition is no" in page


def test_of_launches_of_several_names_the_one_that_started_last_counts(foreign, tmp_path):
    for name, started, loss in (("zz", 100.5, 0.75), ("aa", 200.5, 0.5)):
        for seed in range(3):
            run = foreign(f"{name}{seed}", {"SEED": seed}, [{"loss": loss + seed / 64}])
            status = {"state": "finished", "started": started}
            (run / "status.json").write_text(json.dumps(status))
    (group,) = make_groups(collect([str(tmp_path / "runs")]).runs, Measure(metric="loss"))
    assert sorted(group.scores) == [0.5 + seed / 64 for seed in range(3)]


def test_seeds_that_a_search_stopped_are_missing_in_a_mean(foreign, tmp_path):
    """A search stops what is bad, so the seeds that are left are no sample."""
    for seed in range(4):
        foreign(f"a{seed}", {"LR": 1, "SEED": seed}, [{"v": 2.0 + seed / 10}])
        folder = foreign(f"b{seed}", {"LR": 2, "SEED": seed}, [{"v": 1.0 + seed}])
        if seed:
            status = {"state": "killed", "reason": "pruned at step 2, v 3"}
            (folder / "status.json").write_text(json.dumps(status))
    foreign("c", {"LR": 3, "SEED": 0}, [{"v": 5.0}])
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["v"])
    assert groups_of(tmp_path / "out") == ["lr 1", "lr 3", "lr 2"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Best: lr 1, v 2.15" in page
    assert "lr 2: 3 of 4 runs were stopped by the search; its mean is of the others" in page
    pruned = {row["run"]: row["pruned"] for row in csv_rows(tmp_path / "out" / "runs.csv")}
    assert (pruned["b1"], pruned["b0"], pruned["a1"]) == ("True", "False", "False")


@pytest.mark.parametrize("metric", ["seconds", "speed_mae"])
def test_the_metric_that_is_compared_counts_also_if_it_is_a_time(foreign, tmp_path, metric):
    for seed in range(3):
        for rate in (1, 2):
            run = foreign(f"a{rate}-{seed}", {"LR": rate, "SEED": seed}, [])
            (run / "results.json").write_text(json.dumps({metric: seed + rate / 7, "n": 500}))
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=[metric])
    rows = {row["group"]: row for row in csv_rows(tmp_path / "out" / "groups.csv")}
    assert (rows["lr 1"]["scored"], rows["lr 2"]["scored"]) == ("3", "3")
    assert "exactly the same" not in (tmp_path / "out" / "report.html").read_text()


def test_a_job_that_failed_makes_no_second_one_of_a_setting_and_seed(foreign, tmp_path, capsys):
    """As the first attempt, whose --seed-key was missing."""
    for seed in range(3):
        for identity, state in (("first", "failed"), ("second", "finished")):
            facts = JOB | {"identity": f"{identity}{seed}"}
            folder = foreign(f"{identity}{seed}", {"LR": 1, "SEED": seed}, [{"v": seed}], **facts)
            (folder / "status.json").write_text(json.dumps({"state": state}))
    analyze([str(tmp_path / "runs")], tmp_path / "out", metrics=["v"])
    assert "nothing is concluded" not in capsys.readouterr().err.partition("Not finished")[0]
    (row,) = csv_rows(tmp_path / "out" / "groups.csv")
    assert (row["scored"], row["note"]) == ("3", "")


def test_runs_of_several_names_in_one_group_are_named_and_can_be_told_apart(
    foreign, tmp_path, capsys
):
    """What differs between them, such as a variable of the environment, was not recorded."""
    for name, first in (("a", 0), ("b", 0), ("c", 8)):
        for seed in range(first, first + 3):
            foreign(f"{name}/{seed}", {"SEED": seed}, [{"v": ord(name) + seed / 10}])
    runs = [str(tmp_path / "runs" / "*")]
    said = "the runs of a, b and c have one setting, and count as one group: --by name tells them"
    analyze(runs, tmp_path / "out", metrics=["v"])
    assert said in capsys.readouterr().err
    analyze(runs, tmp_path / "by", metrics=["v"], by="name")
    assert said not in capsys.readouterr().err
    assert groups_of(tmp_path / "by") == ["a", "b", "c"]
    assert [row["scored"] for row in csv_rows(tmp_path / "by" / "groups.csv")] == ["3"] * 3


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (("0.10", "0.20"), ["lr 0.10", "lr 0.20"]),
        (("True", "False"), ["lr True", "lr False"]),
        (("auto", "0.20"), ["lr auto", "lr 0.20"]),
        (("auto", "cosine"), ["auto", "cosine"]),
    ],
)
def test_a_group_named_by_a_word_like_a_number_has_its_key(foreign, tmp_path, texts, labels):
    for number, text in enumerate(texts):
        for seed in range(2):
            foreign(f"{text}-{seed}", {"lr": text, "SEED": seed}, [{"loss": number + seed / 8}])
    groups = make_groups(collect([str(tmp_path / "runs")]).runs, Measure(metric="loss"))
    assert [group.label for group in groups] == labels


def test_curves_with_other_steps_are_interpolated(foreign, tmp_path):
    """Episodes end at steps of their own; here every run has the same line, so the mean is it."""
    for seed in range(3):
        steps = sorted({0, 1000, *(37 * i * (seed + 2) % 1000 for i in range(20))})
        folder = foreign(f"a{seed}", {"SEED": seed}, [])
        rows = "".join(json.dumps({"step": one, "acc": one * 2.0 + seed}) + "\n" for one in steps)
        (folder / "metrics.jsonl").write_text(rows)
    collection = collect([str(tmp_path / "runs")], metrics=["acc"])
    measure = Measure("", "acc")
    with style():
        figure = overview_figure(collection, make_groups(collection.runs, measure), measure)
    line = max((one.get_xydata() for one in figure.axes[0].lines), key=len)
    assert len(line) > 40 and abs(line[:, 1] - 2 * line[:, 0] - 1).max() < 1e-9


def test_values_that_change_nothing_are_named(foreign, tmp_path):
    for rate in (1, 2):
        foreign(f"a{rate}", {"LR": rate}, [{"acc": 0.5}])
    analyze([str(tmp_path / "runs")], tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "2 runs have exactly the same metrics; does the script read LR?" in page


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        ({"commit": "ef" * 20}, ["cdcdcdcd", "efefefef"]),
        ({"record_env": ["AUG=1"]}, ["--record-env aug default", "--record-env aug 1"]),
        ({"processes": 2}, ["--processes default", "--processes 2"]),
        ({"variables": {"MKL_CBWR": "AVX2"}},
         ["variable mkl_cbwr default", "variable mkl_cbwr AVX2"]),
    ],
)  # fmt: skip
def test_a_script_launched_in_another_way_is_another_group(foreign, tmp_path, facts, names):
    for seed in range(3):
        foreign(f"a{seed}", {"SEED": seed}, [{"loss": 1 + seed / 10}])
        other = foreign(f"b{seed}", {"SEED": seed}, [{"loss": 2 + seed / 10}], **facts)
    assert compared(tmp_path / "runs", "loss")[0] == names
    assert ("AUG" in diff_runs(str(tmp_path / "runs/a2"), str(other))) == ("record_env" in facts)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"module": "resnet"}, {"module": "vit"}),
        ({"commit": "a"}, {"commit": "b"}),
        ({"arguments": 1}, {"arguments": 2}),
        ({"optimizer": {"adam": {}}}, {"optimizer": {"sgd": {}}}),
        ({"optimizer": {"adam": {}}}, {"optimizer": {}}),
    ],
)
def test_every_key_of_a_scripts_config_makes_groups(foreign, tmp_path, one, other):
    for seed in range(3):
        facts = {"arguments": ["--quick"]}
        foreign(f"a{seed}", {"SEED": seed} | one, [{"loss": 1 + seed / 10}], **facts)
        foreign(f"b{seed}", {"SEED": seed} | other, [{"loss": 2 + seed / 10}], **facts)
    assert len(set(compared(tmp_path / "runs", "loss")[0])) == 2


def test_an_option_replaces_the_keys_inside_and_around_it(foreign, tmp_path):
    words = {"overrides": ["optimizer.adam.lr", "0.1"]}
    foreign("a", {"SEED": 0, "optimizer": {"adam": {}}}, [{"loss": 1}], **words)
    foreign("b", {"SEED": 1, "optimizer": {"adam": {"lr": 0.1}}}, [{"loss": 2}])
    assert len(compared(tmp_path / "runs", "loss")[0]) == 1


def test_a_filter_finds_the_seed_that_a_config_has_under_its_own_name(foreign, tmp_path):
    for seed in (3, 4):
        foreign(f"a{seed}", {"seed": seed}, [{"loss": seed}])
    keeps = parse_filter("seed != 3")
    assert [run.name for run in collect([str(tmp_path / "runs")], keeps).runs] == ["a4"]
    index = RunIndex(None)
    rows = index.rows([str(tmp_path / "runs" / name) for name in ("a3", "a4")])
    found, _ = select(rows, index, Selection("seed != 3"))
    assert [row.path for row in found] == [str(tmp_path / "runs" / "a4")]


def test_other_inputs_make_another_group(foreign, tmp_path):
    for seed in range(3):
        for name, digest in (("a", "1"), ("b", "2")):
            run = foreign(f"{name}{seed}", {"SEED": seed}, [{"loss": int(digest) + seed / 10}])
            (run / "inputs.json").write_text(json.dumps({"/data": {"x.csv": digest}}))
    assert len(compared(tmp_path / "runs", "loss")[0]) == 2


@pytest.mark.depth
def test_which_of_our_own_metrics_are_better_where_they_are_higher_is_known(runs, tmp_path):
    for name, metric in METRICS.items():
        known = bool(HIGHER_IS_BETTER.fullmatch(f"test.scene.refined.{name}"))
        assert known != METRICS.load(name).lower_is_better, metric
    for seed in range(3):
        for name, value in (("a", 0.5), ("b", 0.7)):
            test = {"refined": {"abs_rel": 0.2, "delta1": value + seed / 100, "coverage90": value}}
            runs.add(f"{name}{seed}", {"LR": value}, seed=seed, test=test)
    analyze([str(runs.folder)], tmp_path / "out", metrics=["test.refined.delta1"])
    assert groups_of(tmp_path / "out") == ["lr 0.7", "lr 0.5"]
    coverage = {"metrics": ["test.refined.coverage90"]}
    with pytest.raises(UserError, match=r"coverage90 is best at 0\.90, so neither its lowest nor"):
        analyze([str(runs.folder)], tmp_path / "out", **coverage)
    analyze([str(runs.folder)], tmp_path / "out", **coverage, maximize=True)


def test_a_clock_that_was_set_back_gives_no_negative_duration(foreign):
    run = foreign("a", {}, [{"loss": 1}])
    for ended, words in ((1.7e9 + 60, ", 60 s"), (1.7e9 - 60, "")):
        status = {"state": "finished", "started": 1.7e9, "ended": ended}
        (run / "status.json").write_text(json.dumps(status))
        started = next(x for x in show_run(RunDir(run)).splitlines() if x.startswith("started"))
        assert started.partition(",")[1:] == (words[:1], words[1:])
