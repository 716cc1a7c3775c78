"""zoerefine runs --remove: which runs go."""

import json
import os
import sys
import time

import pytest

from zoerefine.lab.listing import index

ALL = ("--remove", "--older-than", "0")


def test_without_yes_nothing_is_removed_and_everything_is_named(runs):
    runs.add("unet/a", 0.1)
    runs.add("unet/b", 0.2)
    before = sorted(runs.folder.rglob("*"))
    output = runs.run("--remove", "--keep-best", 1)
    assert output.out == f"would remove {runs.folder}/unet/b\n"
    assert "--yes removes 1 of 2 runs" in output.err
    assert "best is the lowest val.refined.abs_rel (--maximize: the highest)\n" in output.err
    assert [path for path in sorted(runs.folder.rglob("*")) if path.name[0] != "."] == before


def test_a_run_that_did_not_finish_is_not_the_best(runs):
    runs.add("unet/a", 0.1, state="failed")
    runs.add("unet/b", 0.2)
    assert runs.run("--remove", "--keep-best", 1).out == f"would remove {runs.folder}/unet/a\n"


def test_the_size_that_a_removal_reports_is_measured_then(runs, monkeypatch):
    monkeypatch.setattr(index, "FRESH_S", -60.0)  # as if some seconds had passed
    folder = runs.add("unet/a", 0.1)
    (folder / "log.txt").touch()
    runs.run()
    (folder / "log.txt").write_bytes(b"1" * 3_000_000)  # in place
    for words in (ALL, (*ALL, "--yes")):
        assert "1 of 1 runs, 2.9 MiB" in runs.run(*words).err


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--keep-best", 1], ["a1", "b1", "none"]),
        (["--keep-best", 1, "--maximize"], ["a3", "b2", "none"]),
        (["--keep-best", 2], ["a1", "a2", "b1", "b2", "none"]),
        (["--keep-best", 0], ["none"]),
        (["--keep-best", 1, "--older-than", 30], ["a1", "a2", "b1", "b2", "none"]),
        (["--older-than", 30], ["a1", "a2", "b2"]),
        (["--older-than", 1e6], ["a1", "a2", "a3", "b1", "b2", "none"]),
        (["--older-than", 30, "--name", "b"], ["a1", "a2", "a3", "b2"]),
        (["--keep-best", 1, "--metric", "val.pseudo.abs_rel", "--where", "TRAIN.LR>1"],
         ["a1", "a2", "a3", "b1", "b2", "none"]),
    ],
)  # fmt: skip
def test_the_rules_choose_among_the_selected_runs_of_each_name(runs, words, left):
    new = time.time() - 86400
    for name, value, started in (
        ("a/a1", 0.1, new), ("a/a2", 0.2, new), ("a/a3", 0.3, 1.7e9),
        ("b/b1", 0.5, 1.7e9), ("b/b2", 0.6, new), ("b/none", None, 1.7e9),
    ):  # fmt: skip
        runs.add(name, value, started=started)
    runs.run("--remove", *words, "--yes")
    assert runs.ids() == left
    runs.run("--restore", "*", code=0 if len(left) < 6 else 2)
    assert runs.ids() == ["a1", "a2", "a3", "b1", "b2", "none"]


def test_runs_that_cannot_be_changed_stop_no_others(runs, other_user):
    for name in ("a", "b", "c", "d"):
        runs.add(f"unet/{name}", 0.1)
    folder = other_user.copy(runs.folder)
    (folder / "unet/b/.lock").mkdir()
    (folder / "unet/b/.labels.lock").mkdir()
    (folder / "unet/c").chmod(0o555)
    command = [sys.executable, "-m", "zoerefine", "runs", folder]
    tagged = other_user.run([*command, "--tag", "x"])
    removed = other_user.run([*command, "--untag", "x"]), other_user.run([*command, *ALL, "--yes"])
    (folder / "unet/c").chmod(0o755)
    for done in (tagged, *removed):
        assert done.returncode == 1
        assert [line[-1] for line in done.stdout.splitlines()] == ["a", "d"], done.stderr
        for name in ("b", "c"):
            assert f"unet/{name}: it cannot be written to: " in done.stderr
    assert "removed 2 of 4 runs" in removed[1].stderr
    assert sorted(path.name for path in (folder / "unet").iterdir()) == [".trash", "b", "c"]


def test_nothing_outside_the_runs_folder_is_removed(runs):
    outside = runs.add("../elsewhere/a", 0.1).resolve()
    named = runs.add("../others/b", 0.1).resolve()
    inside = runs.add("unet/c", 0.1)
    (runs.folder / "unet/link").symlink_to(outside)
    (runs.folder / "all").symlink_to(named.parent)
    (runs.folder / "unet/c/tb").symlink_to(outside)
    for words in (["runs/unet/link"], ["runs/all"], ["runs/all/b"], ["runs/*/*"], ["runs"]):
        runs.run(*words, *ALL, "--yes")
        assert inside.exists() == (words[0] not in ("runs/*/*", "runs"))
        runs.add("unet/c", 0.1)
    assert (outside / "status.json").exists() and (named / "status.json").exists()


def test_a_name_with_brackets_is_the_folder_of_that_name_and_no_glob(runs):
    kept, old = runs.add("exp1/keepme", 0.1), runs.add("exp[1]/old", 0.1)
    runs.run("runs/exp[1]", "--tag", "x")
    assert runs.listed("--tagged", "x") == ["exp[1]/old"]
    runs.run("runs/exp[1]", "--untag", "x")
    runs.run("runs/exp[1]", *ALL, "--yes")
    assert kept.exists() and not old.exists()


def test_the_link_to_the_latest_run_goes_with_it(runs):
    runs.add("unet/a", 0.1)
    runs.add("unet/b", 0.2)
    (runs.folder / "unet/latest").symlink_to("b")
    runs.run("--remove", "--keep-best", 1, "--yes")
    assert not os.path.lexists(runs.folder / "unet/latest")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--remove"], "needs runs, a filter such as --state failed, or a rule"),
        (["--remove", "--keep-best", "1", "--metric", "f1"], "no run has f1: give another"),
        (["--remove", "--keep-best", "-1"], "must not be negative"),
        (["--remove", "--older-than", "nan"], "not a number of days"),
        (["--remove", "--older-than", "-1"], "not a number of days"),
        (["--keep-best", "1"], "belong to --remove"),
        (["--yes"], "belong to --remove"),
        (["--remove", "--older-than", "1", "--tag", "x"], "cannot be given with"),
        (["--remove", "--older-than", "1", "--limit", "1"], "--limit only shortens the list"),
        (["--state", "failed", "--limit", "1", "--archive"], "--limit only shortens the list"),
        (["--watch"], "needs a terminal"),
        (["--restore", "a", "--name", "unet"], "only take folders of runs"),
        (["--empty-trash", "--tagged", "x"], "only take folders of runs"),
        (["--restore", ""], "'' names no run"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(runs, words, fault):
    runs.add("unet/a", 0.1)
    assert fault in runs.run(*words, code=2).err


def test_the_best_runs_by_delta1_are_those_with_the_highest(runs):
    for name, value in (("a/a1", 0.5), ("a/a2", 0.9)):
        folder = runs.add(name)
        metrics = {"schema": 1, "val": {"refined": {"delta1": value}}}
        (folder / "results.json").write_text(json.dumps(metrics))
    said = runs.run("--remove", "--keep-best", 1, "--metric", "val.refined.delta1", "--yes").err
    assert runs.ids() == ["a2"] and "counts as the best" not in said


def test_a_direction_that_the_name_contradicts_is_named(runs):
    runs.add("unet/a", 0.1)
    (runs.folder / "unet/a/results.json").write_text('{"val_acc": 0.5}')
    (runs.folder / "unet/a/provenance.json").write_text('{"module": "fit.py"}')
    words = ("--remove", "--keep-best", 1, "--metric", "val_acc")
    assert "the lowest val_acc counts as the best: give --maximize" in runs.run(*words).err
    assert "counts as the best" not in runs.run(*words, "--maximize").err


def test_a_named_run_and_those_of_a_filter_need_no_rule(runs):
    for name, state in (("a/a1", "finished"), ("a/a2", "failed"), ("a/a3", "finished")):
        runs.add(name, 0.1, state)
    assert runs.run("--remove", "--state", "failed").out == f"would remove {runs.folder}/a/a2\n"
    runs.run("runs/a/a1", "--remove", "--yes")
    assert runs.ids() == ["a2", "a3"]
