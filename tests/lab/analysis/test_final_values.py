"""Which value counts as a run's final one: the same in the curve, the tables and the caption."""

import json

import pytest

from tests.depth_fixtures import TINY
from tests.lab.analysis.awkward_runs import add_groups
from zoerefine.base.config import load_config
from zoerefine.depth.training.job import run_training
from zoerefine.lab.analysis.groups import Measure, choose_measure, make_groups
from zoerefine.lab.analysis.pictures.captions import legend
from zoerefine.lab.analysis.report.tables import run_rows
from zoerefine.lab.runs.collect import collect

BEST = "checkpoint with the lowest validation AbsRel"


def caption(folder, measure=None):
    runs = collect([str(folder)], metrics=[measure.metric] if measure else ()).runs
    measure = measure or choose_measure(runs)
    return " ".join(legend(make_groups(runs, measure), measure))


def rows_of(folder, metric):
    """The rows of runs.csv."""
    collection = collect([str(folder)], metrics=[metric])
    header, rows = run_rows(collection, make_groups(collection.runs, Measure("", metric)))
    return {row[0]: {k: str(v) for k, v in zip(header, row, strict=True)} for row in rows}


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    """A training of three epochs. Calibration would change the best weights after the last one."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(TINY.replace("DATA: {", f"DATA: {{ROOT: {world}, "))
    folders = ("RUN.ROOT", str(folder / "runs"), "CACHE.ROOT", str(folder / "caches"))
    words = (*folders, "TRAIN.EPOCHS", "3", "TRAIN.CALIBRATE", "False", "TRAIN.LR", "0.03")
    return run_training(load_config(folder / "tiny.yaml", list(words))).path


def test_the_final_value_of_a_training_is_the_lowest_of_its_curve(trained):
    row = rows_of(trained, "val.refined.abs_rel")[trained.name]
    run = collect([str(trained)]).runs[0]
    assert len(run.curve.refined) == 3
    assert float(row["val/refined/abs_rel"]) == pytest.approx(min(run.curve.refined), rel=1e-6)
    assert row["val.refined.abs_rel"] == row["val/refined/abs_rel"]
    assert BEST in caption(trained) and BEST in caption(trained, Measure("", "val.refined.rmse"))


def test_without_validation_scenes_it_is_that_of_the_last_epoch(runs):
    runs.add("a", curve=())
    assert "checkpoint of the last epoch" in caption(runs.folder)
    runs.add("b", {"LR": 1e-2})
    assert f"{BEST} (without validation scenes: of the last epoch)" in caption(runs.folder)


def test_while_a_run_is_training_it_is_that_of_the_best_epoch_so_far(runs):
    folder = runs.add("a", curve=())
    (folder / "results.json").unlink()
    pairs = [(0.5, 0.7), (0.2, 0.9), (0.4, 0.8)]
    with open(folder / "metrics.jsonl", "w") as file:
        for epoch, (abs_rel, delta1) in enumerate(pairs):
            refined = {"abs_rel": abs_rel, "delta1": delta1}
            row = {"phase": "val", "step": epoch, "epoch": epoch, "refined": refined}
            file.write(json.dumps(row | {"pseudo": {"abs_rel": 0.6}}) + "\n")
    assert rows_of(folder, "val.refined.delta1")["a"]["val.refined.delta1"] == "0.9"


def test_of_another_script_it_is_what_it_reported_or_the_last_step(tmp_path):
    for name, reported in (("a", {"acc": 0.9}), ("b", {})):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        recorded = {"module": "train.py", "input": "input.yaml"}
        (folder / "provenance.json").write_text(json.dumps(recorded))
        (folder / "input.yaml").write_text(f"name: {name}")
        (folder / "results.json").write_text(json.dumps(reported))
        rows = [json.dumps({"step": step, "acc": acc}) for step, acc in ((1, 0.9), (2, 0.5))]
        (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    rows = rows_of(tmp_path / "runs", "acc")
    assert (rows["a"]["acc"], rows["b"]["acc"]) == ("0.9", "0.5")
    text = caption(tmp_path / "runs", Measure("", "acc", True))
    assert "the one that it reported, otherwise that of its last step" in text


@pytest.mark.parametrize(("parameters", "drawn"), [((1e6, 2e6), True), ((2e6, 1e6), False)])
def test_the_caption_names_the_pareto_front_where_it_is_drawn(runs, parameters, drawn):
    add_groups(runs, (0.2, 0.1), parameters=parameters)  # the second one is better
    assert ("Pareto front" in caption(runs.folder)) == drawn
