"""Batch analysis: the graph is drawn, the numbers are the runs', nothing is dropped in silence."""

import csv
import json
import shutil

import pytest
from PIL import Image

from zoerefine.analysis.collect import collect
from zoerefine.run_dir import RunDir


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
    rows = rows_of(tmp_path / "report" / "runs.csv")
    assert len(rows) == 4
    for row in rows:
        run = RunDir(copied.parent / row["run"])
        results = run.read_json(run.results_file)
        for split in ("val", "test"):
            for which in ("pseudo", "refined"):
                value = results.get(split, {}).get(which, {}).get("abs_rel")
                assert row[f"{split}/{which}/abs_rel"] == ("" if value is None else str(value))
    assert len({row["TRAIN.LR"] for row in rows}) == 3


def test_the_same_runs_give_the_same_graph(copied, script, tmp_path):
    for name in ("a", "b"):
        script("analyze", copied, "--out", name)
    for kind in ("png", "svg", "pdf", "csv"):
        name = "runs.csv" if kind == "csv" else f"overview.{kind}"
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), kind


def test_unfinished_and_damaged_runs_are_listed(copied, script, tmp_path):
    (copied / "trials" / "0001" / "results.json").write_text("{")
    status = copied / "trials" / "0002" / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"state": "running"}))
    done = script("analyze", copied, "--out", "report")
    assert done.returncode == 0, done.stderr
    assert "0001" in done.stdout
    assert "is damaged" in done.stdout
    rows = {row["run"].rpartition("/")[2]: row for row in rows_of(tmp_path / "report" / "runs.csv")}
    assert rows["0001"]["state"] == "unreadable"
    assert rows["0002"]["state"] == "killed"
    assert "unfinished: 0002 (killed)" in (tmp_path / "report" / "overview.svg").read_text()


def test_runs_studies_and_globs_are_found_once(copied):
    one = collect([str(copied / "trials" / "0000")])
    assert [run.name for run in one.runs] == ["0000"]
    both = collect([str(copied), str(copied / "trials" / "*")])
    assert [run.name for run in both.runs] == ["0000", "0001", "0002", "best"]


def test_nothing_to_analyse_is_one_line(script, tmp_path):
    done = script("analyze", "absent", "--out", "report")
    assert done.returncode == 2
    assert "nothing to analyse in absent" in done.stderr
    assert not (tmp_path / "report").exists()
