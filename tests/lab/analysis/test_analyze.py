"""Batch analysis: the graph is drawn, the numbers are the runs', and no run is dropped silently."""

import json
import os
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.tables import csv_rows
from zoerefine.cli import main
from zoerefine.lab.runs import collect as collecting
from zoerefine.lab.runs.collect import RunCache, RunFolder, collect
from zoerefine.lab.runs.stored import MANY

FILES = ("overview.png", "overview.svg", "overview.pdf", "runs.csv", "groups.csv", "scenes.csv",
         "differences.csv", "report.html")  # fmt: skip


def text_of(svg):
    """The words of a picture."""
    return " ".join(" ".join(ElementTree.parse(svg).getroot().itertext()).split())


def analyze(*words):
    """Run the command in this process; returns its exit code."""
    return main(["analyze", *map(str, words)])


def test_graph_and_tables_of_a_study(copied_study, report):
    with Image.open(report / "overview.png") as image:
        assert image.size[0] > 1500
    assert (report / "overview.pdf").read_bytes().startswith(b"%PDF")
    shown = text_of(report / "overview.svg")
    assert "synthetic world" in shown
    assert "Fewer than 3 seeds" in shown
    rows = csv_rows(report / "runs.csv")
    assert [row["run"] for row in rows] == ["trial 0", "trial 1", "trial 2", "best"]
    for row in rows:
        results = json.loads((copied_study.path / row["path"] / "results.json").read_text())
        for split in ("val", "test"):
            for which in ("pseudo", "refined"):
                value = results.get(split, {}).get(which, {}).get("abs_rel")
                assert row[f"{split}/{which}/abs_rel"] == ("" if value is None else str(value))
    assert len({row["TRAIN.LR"] for row in rows}) == 3
    first = json.loads((copied_study.path / "trials" / "0000" / "results.json").read_text())
    (scene,) = csv_rows(report / "scenes.csv")
    assert float(scene["pseudo"]) == first["val"]["scenes"][scene["scene"]]["pseudo"]["abs_rel"]


def test_the_same_runs_give_the_same_files(copied_study, report, script, tmp_path):
    script("analyze", copied_study.path, "--out", "again")
    for name in FILES:
        assert (report / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_a_changed_run_is_read_again(runs, tmp_path):
    runs.add("a", scenes=(0.2,))
    runs.add("b", scenes=(0.3,))
    path = tmp_path / "collected.json"

    def collected():
        cache = RunCache(path)
        found = collect([str(runs.folder / "*")], cache=cache)
        cache.save()
        return found

    first = collected()
    assert collected() == first
    shutil.rmtree(runs.folder / "a")
    runs.add("a", scenes=(0.111,))
    again = collected()
    assert again.runs[0].metric("test", "refined", "abs_rel") == 0.111
    for damage in ("{", "[]", '{"runs": []}', "[" * 100_000):
        path.write_text(damage)
        assert collected() == again


def test_what_another_version_of_the_reading_code_collected_is_read_again(
    runs, tmp_path, monkeypatch
):
    folder = runs.add("a", scenes=(0.2,))
    cache = RunCache(tmp_path / "collected.json")
    collect([str(folder)], cache=cache)
    cache.save()
    source = RunFolder(folder)
    assert RunCache(cache.file).get(source)
    monkeypatch.setattr(collecting, "reading_code", lambda: "another version")
    assert RunCache(cache.file).get(source) is None


def test_runs_that_several_processes_read_are_all_collected(runs, tmp_path):
    for number in range(MANY):
        runs.add(f"{number:03d}", scenes=(number / 1000,))
    (runs.folder / "007" / "results.json").write_text("{")
    cache = RunCache(tmp_path / "collected.json")
    found = collect([str(runs.folder / "*")], cache=cache)
    read = [Path(run.path).name for run in found.runs]
    assert read == [f"{number:03d}" for number in range(MANY) if number != 7]
    assert [run.metric("test", "refined", "abs_rel") for run in found.runs[:2]] == [0, 0.001]
    [reason] = found.left_out.values()
    assert "results.json is damaged" in reason
    cache.save()
    assert collect([str(runs.folder / "*")], cache=RunCache(cache.file)) == found


@pytest.mark.usefixtures("no_pictures")
def test_unfinished_runs_are_listed_with_their_state(runs, tmp_path):
    runs.add("good")
    (runs.add("running") / "status.json").write_text('{"state": "running"}')
    (runs.add("young") / "results.json").unlink()
    assert analyze(runs.folder, "--out", tmp_path / "report") == 0
    rows = {row["run"]: row for row in csv_rows(tmp_path / "report" / "runs.csv")}
    assert rows["running"]["state"] == "killed"
    assert rows["young"]["test/refined/abs_rel"] == ""


def test_odd_values_of_a_run_are_drawn_as_text_and_numbers(runs, tmp_path):
    odd = {"NAME": r"$\x$ & <b>\u202e</b>", "LIST": [1, [2.5, "$"]], "BIG": 10**400}
    runs.add("odd", odd, parameters="many", pseudo_label=["$\\x$"], data_digest=["d1"])
    runs.add("huge", {"NAME": "b"}, scenes=(1e308,), curve=(1e308, 1e-300))
    runs.add("zero", {"NAME": "c", "LIST": None}, scenes=(0.0,), curve=(0.0, 0.0))
    runs.add("nan", {"NAME": ""}, scenes=(float("nan"),), curve=(float("nan"), float("inf")))
    assert analyze(runs.folder, "--out", tmp_path / "report") == 0
    assert r"$\x$" in text_of(tmp_path / "report" / "overview.svg")
    rows = {row["run"]: row for row in csv_rows(tmp_path / "report" / "runs.csv")}
    assert rows.keys() == {"odd", "huge", "zero", "nan"}
    assert json.loads(rows["odd"]["TRAIN.LIST"]) == odd["LIST"]


def test_runs_studies_and_globs_are_found_once(copied_study):
    folder = copied_study.path
    one = collect([str(folder / "trials" / "0000")])
    assert [run.name for run in one.runs] == ["trial 0"]
    both = collect([str(folder), str(folder / "trials" / "*")])
    assert [run.name for run in both.runs] == ["trial 0", "trial 1", "trial 2", "best"]


@pytest.mark.usefixtures("no_pictures")
def test_where_and_by_from_the_command_line(runs, tmp_path, capsys):
    for number, lr in enumerate((1e-3, 1e-2, 1e-1)):
        runs.add(f"r{number}", {"LR": lr})
    left = tmp_path / "report" / ".overview.pdf.0a0ac6ab.tmp"  # of an analysis that was killed
    mine = left.with_name(".notes.tmp")
    left.parent.mkdir()
    for path in (left, mine):
        path.write_text("half")
    assert analyze(runs.folder, "--out", tmp_path / "report", "--where", "TRAIN.LR<0.05") == 0
    assert "--where left out 1 run\n" in capsys.readouterr().out
    kept = [row for row in csv_rows(tmp_path / "report" / "runs.csv") if not row["note"]]
    assert [row["run"] for row in kept] == ["r0", "r1"]
    assert not left.exists() and mine.read_text() == "half"
    for words, problem in (
        (("--where", "open('x')"), "is not a comparison"),
        (("--where", "TRAIN.LRR < 1"), "no setting TRAIN.LRR"),
        (("--by", "TRAIN.NONE"), "no run has this setting"),
        (("--baseline", "lr 0.0"), "--baseline lr 0.0: no such group; did you mean"),
    ):
        assert analyze(runs.folder, "--out", tmp_path / "other", *words) == 2
        assert problem in capsys.readouterr().err


def test_a_run_without_the_filtered_setting_is_left_out_and_the_others_are_not(runs):
    runs.add("old")
    runs.add("new", {"EMA": 0.9})
    from zoerefine.lab.runs.filter import parse_filter

    found = collect([str(runs.folder)], parse_filter("TRAIN.EMA > 0.5"))
    assert [run.name for run in found.runs] == ["new"]
    assert "the run has no setting TRAIN.EMA" in found.left_out[str(runs.folder / "old")]


def test_importances_find_the_setting_that_matters(runs):
    from zoerefine.lab.analysis.groups import Measure
    from zoerefine.lab.analysis.statistics.importance import importances

    for number in range(30):
        settings = {"LR": 10 ** (-number % 7 - 3.0), "CLIP": float(number % 3)}
        runs.add(f"r{number:02d}", settings, scenes=(0.1 + 0.05 * (number % 7),))
    found = importances(collect([str(runs.folder / "*")]).runs, Measure("test"))
    assert set(found) == {"TRAIN.LR", "TRAIN.CLIP"}
    assert found["TRAIN.LR"].value > found["TRAIN.CLIP"].value
    for number in range(6):  # what did not reach its end does not count
        one = runs.add(f"x{number}", {"LR": 1e-3, "CLIP": 9.0}, scenes=(0.01,))
        (one / "status.json").write_text(json.dumps({"state": "failed"}))
    assert importances(collect([str(runs.folder / "*")]).runs, Measure("test")) == found
    equal = [replace(run, results={"test": {"refined": {"abs_rel": 0.5}}}) for run in
             collect([str(runs.folder / "*")]).runs]  # fmt: skip
    with warnings.catch_warnings(action="error", category=UserWarning):
        assert importances(equal, Measure("test")) == {}  # no half is better


def test_nothing_to_analyse_is_one_line(tmp_path, capsys):
    assert analyze("absent", "--out", tmp_path / "report") == 2
    assert "nothing to analyse in absent" in capsys.readouterr().err
    assert not (tmp_path / "report" / "report.html").exists()


@pytest.mark.parametrize("name", ["report.html", "report.html/inside"])
def test_a_file_in_the_place_of_the_folder_is_one_line(runs, tmp_path, capsys, name):
    (tmp_path / "report.html").write_text("mine")
    assert analyze(runs.add("a"), "--out", tmp_path / name) == 2
    assert capsys.readouterr().err.endswith("report.html is a file: give another --out\n")
    assert (tmp_path / "report.html").read_text() == "mine"


@pytest.mark.parametrize("name", ["runs.csv", "val.refined.rmse/frames.csv"])
def test_tables_of_something_else_are_never_overwritten(runs, tmp_path, capsys, name):
    out = tmp_path / "out"
    path = out / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    metrics = ("--metric", "val.refined.rmse", "--metric", "val.refined.abs_rel")
    assert analyze(runs.add("a"), "--out", out, *metrics) == 2
    error = capsys.readouterr().err
    assert f"{path} could be overwritten" in error
    assert (error.count("\n"), "give another --out" in error) == (1, True)
    assert [p for p in out.rglob("*") if p.is_file()] == [path]
    assert path.read_text() == "mine"


def test_two_runs_side_by_side(study, tmp_path, capsys, here):
    from zoerefine.base.errors import UserError
    from zoerefine.lab.analysis.diff import diff_runs

    trials = study.path / "trials"
    same = diff_runs(str(trials / "0000"), str(trials / "0000"))
    assert "identical: " in same
    assert "settings:" not in same
    picture = tmp_path / "diff.png"
    words = ["diff", str(trials / "0000"), str(trials / "0001"), "--picture", str(picture)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "TRAIN.LR: " in text
    assert "val abs_rel: " in text
    with Image.open(picture) as image:
        assert image.size[0] > 1000
    assert f"{tmp_path} is not a run" in here("diff", trials / "0000", tmp_path, code=2).err
    with pytest.raises(UserError, match=r"holds 4 runs: name one"):
        diff_runs(str(study.path), str(trials / "0000"))


@pytest.mark.parametrize(
    ("first", "second", "labels"),
    [
        ({"settings": {"NAME": "small"}}, {"settings": {"NAME": "guided"}}, ["small ", "guided"]),
        ({"settings": {"LR": 0.1}}, {"settings": {"LR": 0.2}}, ["lr 0.1", "lr 0.2"]),
        ({"seed": 0}, {"seed": 12}, ["seed 0 ", "seed 12"]),
        ({}, {}, ["one  ", "other"]),
    ],
)
def test_diff_calls_runs_by_what_differs(runs, here, first, second, labels):
    folders = [runs.add("one", **first), runs.add("other", **second)]
    lines = here("diff", *folders).out.splitlines()
    assert lines[:2] == [f"{a}  {b}" for a, b in zip(labels, folders, strict=True)]


def test_a_commit_that_is_no_hash_never_reaches_git(runs, tmp_path, here):
    for name, commit in (("a", f"--output={tmp_path}/written"), ("b", "ab" * 20)):
        document = {"commit": commit, "repository": str(tmp_path)}
        (runs.add(name) / "provenance.json").write_text(json.dumps(document))
    assert "commits between" not in here("diff", runs.folder / "a", runs.folder / "b").out


def test_a_damaged_run_is_one_line_of_diff(runs, here):
    (runs.add("a") / "metrics.jsonl").write_bytes(b"\xff\n")
    assert "damaged in line 1" in here("diff", runs.folder / "a", runs.add("b"), code=2).err


def test_a_row_of_runs_csv_names_settings_results_and_origin(runs, tmp_path):
    folder = runs.add("a", {"LR": 0.5}, scenes=(0.25,), seed=3)
    runs.add("b", {"LR": 0.25}, data='=HYPERLINK("x")', data_digest="d2")
    os.rename(runs.add("bad"), os.fsencode(runs.folder) + b"/\xff")  # no UTF-8
    recorded = {"commit": "ab" * 20, "repository": "+cmd|x"}
    (folder / "provenance.json").write_text(json.dumps(recorded))
    assert analyze(runs.folder, "--out", tmp_path / "out") == 0
    rows = {row["run"]: row for row in csv_rows(tmp_path / "out" / "runs.csv")}
    assert rows.keys() == {"a", "b", r"\xff"}
    assert "NOT COMPARABLE" in text_of(tmp_path / "out" / "overview.svg")
    row = rows["a"]
    assert (row["TRAIN.LR"], row["seed"], row["state"]) == ("0.5", "3", "finished")
    assert (row["test/refined/abs_rel"], row["commit"]) == ("0.25", "ab" * 20)
    assert [row["data_name"], row["data_digest"], row["path"]] == [
        "made by hand",
        "d1",
        str(folder),
    ]
    assert row["repository"] == "'+cmd|x" and rows["b"]["data_name"] == '\'=HYPERLINK("x")'
