"""The same six runs in every tracker give one table, and nothing of a tracker is changed."""

import json
import shutil

import pytest

from tests.lab.runs.trackers.conftest import INSTALL, LOGGED, WAYS, log_mlflow, start_wandb
from tests.lab.runs.trackers.test_damaged_stores import copied
from tests.processes import run_new_python
from tests.tables import csv_rows
from zoerefine.base.files.atomic import digest_file
from zoerefine.lab.analysis.analyze import analyze
from zoerefine.lab.analysis.groups import Measure, make_groups
from zoerefine.lab.runs.collect import RunCache, collect

pytestmark = pytest.mark.usefixtures("no_pictures")
TRACKERS = [way for way in WAYS if way != "contract"]

# Runs `zoerefine`; prints every attempt to connect to another machine.
WATCHED = """
import sys

def watch(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        print("CONNECTED", args[1])
    if event == "socket.getaddrinfo":
        print("CONNECTED", args[0])

sys.addaudithook(watch)
from zoerefine.cli import main
sys.exit(main(sys.argv[1:]))
"""


def table(folder):
    """The rows of runs.csv without their places."""
    rows = csv_rows(folder / "runs.csv")
    return [{key: value for key, value in row.items() if key != "path"} for row in rows]


@pytest.fixture(scope="session")
def expected(logged, tmp_path_factory):
    out = tmp_path_factory.mktemp("expected")
    analyze([str(logged("contract"))], out, metrics=["val_acc"], maximize=True)
    return out


@pytest.mark.parametrize("way", TRACKERS)
def test_the_same_runs_give_the_same_tables(way, logged, expected, tmp_path):
    analyze([str(logged(way))], tmp_path, metrics=["val_acc"], maximize=True)
    assert table(tmp_path) == table(expected)
    for name in ("groups.csv", "differences.csv", "tables.md"):
        assert (tmp_path / name).read_bytes() == (expected / name).read_bytes(), name


def test_the_table_holds_what_was_logged(expected):
    for run, row in zip(LOGGED, table(expected), strict=True):
        final = list(run.rows)[-1][1]
        assert (row["run"], row["seed"], row["state"]) == (run.name, str(run.seed), "finished")
        assert (row["model"], float(row["training.lr"])) == (run.settings["model"], run.lr)
        assert {name: float(row[name]) for name in final} == final


@pytest.mark.parametrize("way", TRACKERS)
def test_curves_are_those_that_were_logged(way, logged):
    found = {run.name: run for run in collect([str(logged(way))], metrics=["loss"]).runs}
    for run in LOGGED:
        curve = found[run.name].curves["loss"]
        rows = {step: metrics["loss"] for step, metrics in run.rows}
        assert dict(zip(curve.epochs, curve.refined, strict=True)) == rows


def test_runs_of_all_trackers_stand_in_one_table(logged, tmp_path):
    places = [str(logged(way)) for way in WAYS]
    analyze(places, tmp_path, metrics=["val_acc"], maximize=True)
    rows = table(tmp_path)
    assert [row["run"] for row in rows] == len(WAYS) * [run.name for run in LOGGED]


@pytest.mark.parametrize("way", TRACKERS)
def test_a_copy_of_a_store_holds_no_further_seeds(way, logged, tmp_path):
    place = logged(way)
    found = collect([str(place), str(copied(place, tmp_path))])
    assert len(found.runs) == len(LOGGED)
    assert sum("no further seed" in reason for reason in found.left_out.values()) == len(LOGGED)


def test_a_copy_whose_link_to_the_latest_run_became_a_folder_counts_that_run_once(logged, tmp_path):
    copy = shutil.copytree(logged("wandb"), tmp_path / "copy")  # as cp -rL
    latest = list(copy.glob("*/wandb/latest-run"))
    assert len(latest) == len(LOGGED) and not any(path.is_symlink() for path in latest)
    found = collect([str(copy)])
    assert len(found.runs) == len(LOGGED) and set(found.left_out) == set(map(str, latest))
    assert len(collect([str(latest[0])]).runs) == 1


def test_the_cache_gives_the_same_runs(logged, tmp_path):
    def collected():
        cache = RunCache(tmp_path / "collected.json", ["loss"])
        found = collect([str(logged(way)) for way in WAYS], cache=cache, metrics=["loss"])
        cache.save()
        return found

    assert repr(collected()) == repr(collected())


@pytest.mark.parametrize("way", TRACKERS)
def test_reading_changes_no_file_and_contacts_no_server(way, logged, tmp_path):
    store = logged(way)
    words = ["analyze", store, "--out", tmp_path / "out", "--metric", "val_acc"]

    def digests():
        files = [store] if store.is_file() else [p for p in store.rglob("*") if p.is_file()]
        return {str(path): digest_file(path) for path in files}

    before = digests()
    assert "CONNECTED" not in run_new_python(WATCHED, *words, cwd=tmp_path).stdout
    assert digests() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_filter_and_grouping_work_on_settings_of_a_tracker(logged, tmp_path):
    place = str(logged("tensorboard"))
    found = collect([place], keeps=lambda settings: settings["training.lr"] < 0.3).runs
    assert {run.settings["model"] for run in found} == {"cnn"}
    analyze([place], tmp_path, by="model", metrics=["val_acc"], maximize=True)
    assert [row["group"] for row in csv_rows(tmp_path / "groups.csv")] == ["mlp", "cnn"]


def test_parts_of_a_run_are_no_runs(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="torch is not installed")

    for run in ("a", "b"):
        for part in ("train", "validation"):
            with tensorboard.SummaryWriter(str(tmp_path / "logs" / run / part)) as writer:
                writer.add_scalar("epoch_loss", 0.5 if part == "train" else 0.75, 1)
    runs = collect([str(tmp_path / "logs")]).runs
    assert [run.name for run in runs] == ["a", "b"]
    assert runs[0].finals == {"train/epoch_loss": 0.5, "validation/epoch_loss": 0.75}


def test_a_summary_that_the_script_set_is_the_final_value(tmp_path):
    wandb = pytest.importorskip("wandb", reason="W&B is not installed")
    with start_wandb(wandb, tmp_path, LOGGED[0]) as run:
        run.log({"val_acc": 0.5, "epoch": 10})
        run.log({"val_acc": 0.25, "epoch": 20})
        run.summary["val_acc"] = 0.5
        run.config.update({"note": "x" * 100_000})  # longer than a block of the file
    found = collect([str(tmp_path)], metrics=["val_acc"]).runs[0]
    assert found.finals == {"val_acc": 0.5}
    assert found.curves["val_acc"].epochs == [10, 20]
    assert found.settings["note"] == "x" * 100_000
    assert json.dumps(found.faults) == "[]"


COMMITS = ("1" * 40, "2" * 40, "2" * 40)


def commits_in_mlflow(folder, commits=COMMITS):
    client = log_mlflow((folder / "mlruns").as_uri(), LOGGED[:3])
    experiment = client.get_experiment_by_name("six").experiment_id
    runs = sorted(client.search_runs([experiment]), key=lambda run: run.info.start_time)
    for run, commit in zip(runs, commits, strict=False):
        client.set_tag(run.info.run_id, "mlflow.source.git.commit", commit)


def commits_in_wandb(folder):
    wandb = pytest.importorskip("wandb", reason=f"W&B is not installed: {INSTALL}")
    for run, commit in zip(LOGGED[:3], COMMITS, strict=True):
        (folder / run.name).mkdir()
        place, of_git = folder / run.name, {"disable_git": False, "git_commit": commit}
        with start_wandb(wandb, place, run, git_remote_url="x", **of_git) as started:
            started.log({"val_acc": 0.5 + run.seed})


@pytest.mark.parametrize("log", [commits_in_mlflow, commits_in_wandb])
def test_runs_of_another_commit_are_no_seeds_of_one_group(log, tmp_path):
    log(tmp_path)
    runs = collect([str(tmp_path)], metrics=["val_acc"]).runs
    assert [run.commit for run in runs] == list(COMMITS)
    groups = make_groups(runs, Measure(metric="val_acc"))
    sizes = {group.label: len(group.runs) for group in groups}
    assert sizes == {"commit 11111111": 1, "commit 22222222": 2}


def test_runs_without_a_commit_have_no_default_one(tmp_path):
    commits_in_mlflow(tmp_path, ["a" * 40])
    groups = make_groups(collect([str(tmp_path)]).runs, Measure(metric="val_acc"))
    assert {group.label for group in groups} == {"commit aaaaaaaa", "commit unknown"}


def test_parameters_of_mlflow_that_differ_in_zeros_are_two_settings(tmp_path):
    client = log_mlflow((tmp_path / "mlruns").as_uri(), LOGGED[:3])
    experiment = client.get_experiment_by_name("six").experiment_id
    runs = sorted(client.search_runs([experiment]), key=lambda run: run.info.start_time)
    for run, version in zip(runs, ("1.1", "1.10", "1.10"), strict=True):
        client.log_param(run.info.run_id, "version", version)
    found = collect([str(tmp_path)], metrics=["val_acc"]).runs
    groups = make_groups(found, Measure(metric="val_acc"))
    sizes = {group.label: len(group.runs) for group in groups}
    assert sizes == {"version 1.1": 1, "version 1.10": 2}
