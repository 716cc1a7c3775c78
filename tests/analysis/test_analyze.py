"""Batch analysis: the graph is drawn, the numbers are the runs', nothing is dropped in silence."""

import csv
import json
import shutil

import pytest
from PIL import Image

from zoerefine.analysis.collect import collect
from zoerefine.run_dir import RunDir

FILES = ("overview.png", "overview.svg", "overview.pdf", "runs.csv", "groups.csv", "scenes.csv",
         "differences.csv", "report.html")  # fmt: skip


@pytest.fixture
def copied(study, tmp_path):
    shutil.copytree(study.path, tmp_path / "study")
    return tmp_path / "study"


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_graph_and_table_of_a_study(copied, script, tmp_path):
    done = script("analyze", copied, "--out", "report")
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "report" / "overview.png") as image:
        assert image.size[0] > 1500
    assert (tmp_path / "report" / "overview.pdf").read_bytes().startswith(b"%PDF")
    svg = (tmp_path / "report" / "overview.svg").read_text()
    assert "synthetic world" in svg
    assert "fewer than 3 seeds" in svg
    assert "not measured on validation scenes: best" in svg
    rows = rows_of(tmp_path / "report" / "runs.csv")
    assert [row["run"] for row in rows] == ["trial 0", "trial 1", "trial 2", "best"]
    for row in rows:
        results = json.loads((RunDir(copied).path / row["path"] / "results.json").read_text())
        for split in ("val", "test"):
            for which in ("pseudo", "refined"):
                value = results.get(split, {}).get(which, {}).get("abs_rel")
                assert row[f"{split}/{which}/abs_rel"] == ("" if value is None else str(value))
    assert len({row["TRAIN.LR"] for row in rows}) == 3
    best = json.loads((copied / "trials" / "0000" / "results.json").read_text())
    (scene,) = rows_of(tmp_path / "report" / "scenes.csv")
    assert float(scene["pseudo"]) == best["val"]["scenes"][scene["scene"]]["pseudo"]["abs_rel"]


def test_the_same_runs_give_the_same_files(copied, script, tmp_path):
    for name in ("a", "b"):
        done = script("analyze", copied, "--out", name)
        assert done.returncode == 0, done.stderr
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_what_is_remembered_is_forgotten_when_a_run_changes(runs, tmp_path):
    runs.add("a", scenes=(0.2,))
    runs.add("b", scenes=(0.3,))
    memory = tmp_path / "collected.json"
    first = collect([str(runs.folder / "*")], memory=memory)
    assert collect([str(runs.folder / "*")], memory=memory) == first
    shutil.rmtree(runs.folder / "a")
    runs.add("a", scenes=(0.111,))
    again = collect([str(runs.folder / "*")], memory=memory)
    assert again.runs[0].metric("test", "refined", "abs_rel") == 0.111
    memory.write_text("{")
    assert collect([str(runs.folder / "*")], memory=memory) == again


def test_unfinished_damaged_and_foreign_runs_are_listed(runs, script, tmp_path):
    runs.add("good")
    (runs.add("damaged") / "results.json").write_text("{")
    (runs.add("list") / "provenance.json").write_text("[]")
    (runs.add("yaml") / "config.yaml").write_text("a: [")
    (runs.add("row") / "metrics.jsonl").write_text('{"phase": "val"}\n')
    runs.add("newer", schema=99)
    (runs.add("running") / "status.json").write_text('{"state": "running"}')
    (runs.add("young") / "results.json").unlink()
    done = script("analyze", runs.folder, "--out", "report")
    assert done.returncode == 0, done.stderr
    rows = {row["run"]: row for row in rows_of(tmp_path / "report" / "runs.csv")}
    notes = {name: row["note"] for name, row in rows.items() if row["state"] == "left out"}
    assert set(notes) == {"damaged", "list", "yaml", "row", "newer"}
    assert "has schema 99" in notes["newer"]
    assert "damaged in line 1" in notes["row"]
    assert rows["running"]["state"] == "killed"
    assert rows["young"]["test/refined/abs_rel"] == ""
    for name in notes:
        assert name in done.stdout


def test_runs_studies_and_globs_are_found_once(copied):
    one = collect([str(copied / "trials" / "0000")])
    assert [run.name for run in one.runs] == ["trial 0"]
    both = collect([str(copied), str(copied / "trials" / "*")])
    assert [run.name for run in both.runs] == ["trial 0", "trial 1", "trial 2", "best"]


def test_where_and_by_from_the_command_line(runs, script, tmp_path):
    for number, lr in enumerate((1e-3, 1e-2, 1e-1)):
        runs.add(f"r{number}", {"LR": lr})
    done = script("analyze", runs.folder, "--out", "report", "--where", "TRAIN.LR<0.05")
    assert done.returncode == 0, done.stderr
    kept = [row for row in rows_of(tmp_path / "report" / "runs.csv") if not row["note"]]
    assert [row["run"] for row in kept] == ["r0", "r1"]
    done = script("analyze", runs.folder, "--out", "other", "--where", "open('x')")
    assert (done.returncode, "--where" in done.stderr) == (2, True)


def test_different_data_are_never_compared_in_silence(runs, script, tmp_path):
    runs.add("a")
    runs.add("b", data_digest="d2")
    script("analyze", runs.folder, "--out", "report")
    assert "NOT COMPARABLE" in (tmp_path / "report" / "overview.svg").read_text()


def test_importances_find_the_setting_that_matters(runs):
    from zoerefine.analysis.settings import importances

    for number in range(30):
        settings = {"LR": 10 ** (-number % 7 - 3.0), "CLIP": float(number % 3)}
        runs.add(f"r{number:02d}", settings, scenes=(0.1 + 0.05 * (number % 7),))
    found = importances(collect([str(runs.folder / "*")]).runs, "test")
    assert set(found) == {"TRAIN.LR", "TRAIN.CLIP"}
    assert found["TRAIN.LR"] > found["TRAIN.CLIP"]


def test_nothing_to_analyse_is_one_line(script, tmp_path):
    done = script("analyze", "absent", "--out", "report")
    assert done.returncode == 2
    assert "nothing to analyse in absent" in done.stderr
    assert not (tmp_path / "report" / "report.html").exists()


def test_two_runs_side_by_side(study, script, tmp_path):
    from zoerefine.analysis.diff import diff_runs
    from zoerefine.errors import UserError

    trials = study.path / "trials"
    text = diff_runs(str(trials / "0000"), str(trials / "0001"))
    assert "TRAIN.LR: " in text
    assert "val abs_rel: " in text
    same = diff_runs(str(trials / "0000"), str(trials / "0000"))
    assert "identical: " in same
    assert "settings:" not in same
    done = script("diff", trials / "0000", trials / "0001", "--picture", "diff.png")
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "diff.png") as image:
        assert image.size[0] > 1000
    with pytest.raises(UserError, match=r"4 runs: name one"):
        diff_runs(str(study.path), str(trials / "0000"))
