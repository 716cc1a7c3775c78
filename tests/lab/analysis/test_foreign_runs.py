"""Runs of repositories that know nothing of us: launched for real, then shown and compared."""

from pathlib import Path

import pytest

from tests.foreign import KINDS, ForeignRepository
from tests.processes import run_zoerefine
from tests.tables import csv_rows
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.analysis.analyze import analyze
from zoerefine.lab.analysis.diff import diff_runs
from zoerefine.lab.launch.record.show import show_run
from zoerefine.lab.runs.collect import RunCache, collect
from zoerefine.lab.runs.metrics import read_metrics

RATES, SEEDS = (0.01, 0.1), (0, 1)


class Launched:
    """A foreign repository, a user's folder, and launches of the script from there."""

    def __init__(self, folder, kind):
        self.folder = folder
        self.repository = ForeignRepository(folder / "repository", kind)

    def launch(self, *words):
        """Launch; returns the run."""
        self.command("run", *self.repository.job(), "--name", "mnist", *words)
        return RunDir((self.folder / "runs" / "mnist" / "latest").resolve())

    def command(self, *words):
        return run_zoerefine(self.folder, *words, env={"ZOEREFINE_HOME": str(self.folder / "home")})


@pytest.fixture(scope="module", params=KINDS)
def launched(request, tmp_path_factory):
    """Four runs: two learning rates with two seeds each. Tests must not change them."""
    made = Launched(tmp_path_factory.mktemp(request.param), request.param)
    made.runs = {
        (rate, seed): made.launch(*made.repository.set(lr=rate, seed=seed))
        for rate in RATES
        for seed in SEEDS
    }
    return made


def test_metrics_are_those_of_running_the_script_by_hand(launched, tmp_path):
    for number, ((rate, seed), run) in enumerate(launched.runs.items()):
        by_hand = launched.repository.run_by_hand(tmp_path / str(number), lr=rate, seed=seed)
        metrics = read_metrics(run)
        assert metrics.final["val_acc"] == pytest.approx(by_hand, rel=1e-6)
        assert metrics.series["val_acc"].steps == [1, 2, 3, 4] and metrics.faults == ()


def test_analyze_groups_by_config_and_ranks_by_the_metric(launched, tmp_path):
    out = tmp_path / "report"
    words = ("--metric", "val_acc", "--maximize")
    launched.command("analyze", "runs/mnist", "--out", out, *words)
    groups = csv_rows(out / "groups.csv")
    assert [(row["group"], row["runs"]) for row in groups] == [("lr 0.01", "2"), ("lr 0.1", "2")]
    assert float(groups[0]["mean"]) > float(groups[1]["mean"])
    finals = {Path(row["path"]): float(row["val_acc"]) for row in csv_rows(out / "runs.csv")}
    for run in launched.runs.values():
        assert finals[run.path] == read_metrics(run).final["val_acc"]
    page = (out / "report.html").read_text()
    assert "Best: lr 0.01, val_acc" in page and "AbsRel 0" not in page
    assert not (out / "scenes.csv").exists()


def test_show_prints_final_metrics_and_where_they_are(launched):
    run = launched.runs[0.01, 0]
    page = show_run(run)
    metrics = read_metrics(run)
    assert f"{metrics.final['val_acc']:.6g}" in page and metrics.source in page


def test_diff_prints_settings_and_metrics(launched):
    first, second = launched.runs[0.01, 0], launched.runs[0.1, 0]
    text = diff_runs(str(first.path), str(second.path))
    key = launched.repository.keys["lr"]
    assert f"  {key}: 0.01 -> 0.1" in text
    x, y = (read_metrics(run).final["val_acc"] for run in (first, second))
    assert f"  val_acc: {x:.6f} -> {y:.6f} ({y - x:+.6f})" in text


@pytest.mark.usefixtures("no_pictures")
def test_without_a_metric_the_names_are_listed(launched, tmp_path):
    patterns = [str(launched.folder / "runs" / "mnist")]
    names = {name for run in collect(patterns).runs for name in run.finals}
    if len(names) == 1:
        analyze(patterns, tmp_path)
        return
    with pytest.raises(UserError, match=r"which metric\? give --metric NAME .*val_acc"):
        analyze(patterns, tmp_path)


def test_a_name_that_is_not_there_is_answered_with_the_nearest(launched, tmp_path):
    with pytest.raises(UserError, match=r"no finite final|did you mean val_acc\?"):
        analyze([str(launched.folder / "runs" / "mnist")], tmp_path, metrics=["val_ac"])


def test_the_cache_gives_the_same_runs_and_follows_changes(launched, tmp_path):
    patterns = [str(launched.folder / "runs" / "mnist")]

    def collected(metric):
        cache = RunCache(tmp_path / "c.json", [metric])
        found = collect(patterns, cache=cache, metrics=[metric]).runs
        cache.save()
        return found

    assert repr(collected("val_acc")) == repr(collected("val_acc"))
    other = collected("loss")
    assert all("val_acc" not in run.curves for run in other)
