"""zoerefine runs: what is listed, selected, sorted and labelled, and the index behind it."""

import json
import signal
import subprocess
import sys

import pytest

from tests.processes import run_new_python, run_zoerefine
from zoerefine.lab.runs.stored import MANY


def test_the_runs_of_every_name_are_listed_newest_first(three):
    output = three.run()
    lines = output.out.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["unet/b", "other/c", "unet/a"]
    assert lines[0].split() == ["state", "started", "size", "abs_rel", "run"]
    assert lines[1].split()[0] == "finished" and "0.1" in lines[1].split()
    assert "3 runs (2 finished, 1 failed)" in output.err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--state", "failed"], ["other/c"]),
        (["--state", "failed", "--state", "finished"], ["unet/b", "other/c", "unet/a"]),
        (["--commit", "bb"], ["unet/b"]),
        (["--name", "un*"], ["unet/b", "unet/a"]),
        (["--where", "TRAIN.LR>=1e-3"], ["other/c", "unet/a"]),
        (["--where", "state=='finished' and val.refined.abs_rel<0.2"], ["unet/b"]),
        (["--where", "name=='other' or commit=='" + "aa" * 20 + "'"], ["other/c", "unet/a"]),
        (["runs/unet"], ["unet/b", "unet/a"]),
        (["runs/*/a", "runs/other"], ["other/c", "unet/a"]),
        (["--limit", "1"], ["unet/b"]),
    ],
)
def test_filters_select_runs(three, words, found):
    assert three.listed(*words) == found
    assert three.listed(*words) == found  # from the index


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--sort", "val.refined.abs_rel"], ["unet/b", "unet/a", "other/c"]),
        (["--sort", "TRAIN.LR"], ["unet/b", "unet/a", "other/c"]),
        (["--sort", "TRAIN.LR", "--reverse"], ["other/c", "unet/a", "unet/b"]),
        (["--sort", "name"], ["other/c", "unet/a", "unet/b"]),
        (["--reverse"], ["unet/a", "other/c", "unet/b"]),
    ],
)
def test_runs_are_sorted_by_columns_metrics_and_config_keys(three, words, found):
    assert three.listed(*words) == found


def test_scripts_are_sorted_by_config_keys_and_selected_by_metrics_of_any_name(runs):
    for name, lr, loss in (("a", 0.3, 0.5), ("b", 0.1, 0.4), ("c", 0.2, 0.6)):
        folder = runs.add(f"script/{name}", module="train.py")
        (folder / "input.yaml").write_text(f"lr: {lr}\n")
        (folder / "results.json").write_text(json.dumps({"train/loss": loss, "val-acc": lr}))
    assert runs.listed("--sort", "lr") == ["script/b", "script/c", "script/a"]
    assert runs.listed("--sort", "lr", "--where", "`train/loss`<0.55 and lr>0") == [
        "script/b", "script/a"
    ]  # fmt: skip
    assert runs.listed("--where", "`val-acc`>=0.3 and state!='`'") == ["script/a"]


def test_words_that_are_numbers_are_sorted_by_size(runs):
    """A script without a config has the words of its command, of which 0.10 is no float's text."""
    for name, lr in {"a": "'0.10'", "b": 0.5, "c": "'0.050'", "d": "nan", "e": 0.06}.items():
        (runs.add(f"script/{name}", module="train.py") / "input.yaml").write_text(f"lr: {lr}\n")
    assert runs.listed("--sort", "lr") == [f"script/{name}" for name in "ceabd"]


def test_seeds_of_any_size_are_sorted(three):
    three.add("huge/a", 0.1, seed=2**2000)
    assert three.listed("--sort", "seed")[-1] == "huge/a"


def test_a_name_with_brackets_is_that_name_and_no_pattern_where_runs_have_it(three):
    for name in ("exp[1]/a", "exp1/a"):
        three.add(name, 0.1)
    assert three.listed("--name", "exp[1]") == ["exp[1]/a"]
    assert three.listed("--name", "exp[12]") == ["exp1/a"]


def test_runs_are_sorted_by_size_on_disk(three):
    (three.folder / "other/c/checkpoints").mkdir()
    (three.folder / "other/c/checkpoints/last.pt").write_bytes(b"1" * 3_000_000)
    assert three.listed("--sort", "size", "--reverse")[0] == "other/c"
    assert "2.9 MiB" in three.run("--state", "failed").out


def test_what_cannot_be_sorted_by_or_compared_is_one_line(three):
    assert "no run has it" in three.run("--sort", "TRAIN.NOTHING", code=2).err
    assert "not a comparison" in three.run("--where", "import os", code=2).err
    assert "cannot be applied to 3 runs" in three.run("--where", "TRAIN.NOTHING>1").err


def test_a_folder_without_runs_and_a_missing_one_are_one_line(runs):
    assert "does not exist" in runs.run(code=2).err
    runs.folder.mkdir()
    assert "no run in runs" in runs.run(code=2).err


def test_tags_and_notes_are_kept_in_the_run(three):
    three.run("runs/unet/a", "--tag", "paper", "--tag", "best", "--note", "table 2")
    assert "unet/a [best] [paper] table 2" in three.run().out
    assert three.listed("--tagged", "paper") == ["unet/a"]
    assert three.listed("--where", "'best' in tags") == ["unet/a"]
    three.run("--tagged", "paper", "--untag", "paper", "--note", "")
    assert "unet/a [best]\n" in three.run().out


def test_archived_runs_are_listed_only_when_asked_for(three):
    three.run("--state", "failed", "--archive")
    assert three.listed() == ["unet/b", "unet/a"]
    assert three.listed("--archived") == ["other/c"]
    three.run("--archived", "--unarchive")
    assert len(three.listed()) == 3


def test_the_labels_of_a_damaged_run_count(three):
    (three.folder / "unet/a/status.json").write_text("{")
    three.run("--state", "damaged", "--archive", "--tag", "broken", "--note", "disk 3")
    assert three.listed() == ["unet/b", "other/c"]
    assert "unet/a [broken] disk 3" in three.run("--archived", "--tagged", "broken").out
    three.run("--archived", "--unarchive")
    assert len(three.listed()) == 3


@pytest.mark.parametrize("tag", ["", "a b", "a,b", "\x1b[31m", "x" * 41])
def test_what_cannot_be_a_tag_is_refused_before_anything_is_written(three, tag):
    assert "cannot be a tag" in three.run("runs/unet/a", "--tag", tag, code=2).err
    assert not (three.folder / "unet/a/.labels.json").exists()


def test_labels_of_every_run_are_changed_only_with_a_filter_or_names(three):
    assert "would change every run" in three.run("--tag", "paper", code=2).err
    three.run("runs", "--tag", "paper")
    assert len(three.listed("--tagged", "paper")) == 3


def test_a_run_keeps_the_tags_that_two_commands_give_at_once(three):
    folder = three.folder / "unet/a"
    command = [sys.executable, "-m", "zoerefine", "runs", str(folder), "--quiet", "--tag"]
    started = [subprocess.Popen([*command, f"t{n}"], stdout=subprocess.DEVNULL) for n in range(4)]
    assert [process.wait() for process in started] == [0] * 4
    assert json.loads((folder / ".labels.json").read_text())["tags"] == ["t0", "t1", "t2", "t3"]


@pytest.mark.parametrize("name", ["status.json", "provenance.json", "results.json", ".labels.json"])
@pytest.mark.parametrize("content", ["{", "[]", '{"val": 3, "tags": 3, "state": 3}', "[" * 10**5])
def test_a_damaged_run_is_listed_with_the_reason_and_stops_no_other(three, name, content):
    if name == "provenance.json" and content.startswith('{"val'):
        pytest.skip("a provenance.json may hold anything")
    (three.folder / "unet/a" / name).write_text(content)
    lines = {line[49:].split()[0]: line for line in three.run().out.splitlines()[1:]}
    assert lines["unet/a"].startswith("damaged") and name in lines["unet/a"]
    assert lines["unet/b"].startswith("finished")
    assert three.listed("--state", "damaged") == ["unet/a"]


def test_control_characters_never_reach_the_terminal(runs):
    runs.add("na\x1b[31mme/\x1b]0;title\x07", 0.1)
    folder = runs.add("bidi\u202ename/new\nline", 0.1)
    (folder / ".labels.json").write_text(json.dumps({"tags": ["\x1b[2J"], "note": "\x9bA\r"}))
    failed = runs.add("plain/c", state="failed")
    reason = {"state": "failed", "reason": "\x1b[2J \x07 bell"}
    (failed / "status.json").write_text(json.dumps(reason))
    for words in ([], ["--where", "TRAIN.NO>1"], ["--tag", "x", "runs"], ["--metric", "\x1b[1m"],
                  ["--sort", "\x1b[1m"], ["--remove", "--keep-best", "0"]):  # fmt: skip
        printed = run_zoerefine(runs.root, "runs", *words, code=None)
        text = printed.stdout + printed.stderr
        assert all(char.isprintable() or char == "\n" for char in text), words
        assert len(text.splitlines()) < 12


def test_trials_and_the_best_run_of_a_study_are_listed(runs):
    runs.add("demo/study/trials/0000", 0.2)
    runs.add("demo/study/trials/0001", 0.1)
    runs.add("demo/study/best", 0.05)
    runs.add("demo/study", state="finished")
    found = ["demo/study/best", "demo/study/trials/0001", "demo/study/trials/0000"]
    assert runs.listed("--sort", "val.refined.abs_rel") == found
    assert len(runs.listed("--name", "demo")) == 3


def test_a_trial_and_a_best_run_that_were_pulled_without_their_study_are_listed(runs):
    names = ["demo/study/trials/0000", "unet/study/best"]
    for name in names:
        runs.add(name, 0.1)
    assert sorted(runs.listed()) == sorted(runs.listed("runs/*")) == names


def test_the_metrics_of_a_script_are_listed(runs):
    folder = runs.add("script/a", module="train.py")
    (folder / "results.json").write_text('{"val_acc": 0.91}')
    assert runs.run("--metric", "val_acc").out.splitlines()[1].split()[-2] == "0.91"
    assert runs.listed("--where", "val_acc>0.9") == ["script/a"]


def test_a_running_run_is_killed_once_its_process_is_gone(runs, writer, settled):
    folder = runs.add("unet/a", state="killed")
    process = writer(folder)
    assert runs.listed("--state", "running") == ["unet/a"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert runs.listed("--state", "killed") == ["unet/a"]
    process = writer(folder)  # started again
    assert runs.listed("--state", "running") == ["unet/a"]
    process.communicate("")
    assert runs.listed("--state", "finished") == ["unet/a"]


def test_a_running_run_shows_its_latest_metrics(runs, writer, settled):
    folder = runs.add("unet/a")
    writer(folder)
    for value in (0.5, 0.4):
        with open(folder / "metrics.jsonl", "a") as file:
            row = {"phase": "val", "step": 10 - 10 * value, "refined": {"abs_rel": value}}
            file.write(json.dumps(row) + "\n")
        assert f" {value} " in runs.run().out


def test_runs_that_may_only_be_read_are_listed(three, other_user):
    folder = other_user.copy(three.folder)
    subprocess.run(["chown", "-R", "root", folder], check=True)
    done = other_user.run([sys.executable, "-m", "zoerefine", "runs", folder])
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
    assert not (folder / ".runs-index").exists()


def test_what_another_user_closed_is_listed_as_damaged_and_stops_no_other(three, other_user):
    folder = other_user.copy(three.folder)
    for name in ("unet/no", "unet/names", "closed/c"):
        other_user.copy(three.folder / "unet/b", f"runs/{name}")
    modes = {"unet/no": 0, "unet/names": 0o444, "closed": 0}
    for name, mode in modes.items():
        (folder / name).chmod(mode)
    command = [sys.executable, "-m", "zoerefine", "runs"]
    done, one = other_user.run([*command, folder]), other_user.run([*command, folder / "unet/no"])
    for name in modes:
        (folder / name).chmod(0o755)
    assert done.returncode == one.returncode == 0, done.stderr + one.stderr
    assert "Permission denied" in one.stdout
    lines = {line[49:].split()[0]: line for line in done.stdout.splitlines()[1:]}
    closed = ["runs/closed", "unet/names", "unet/no"]
    assert sorted(lines) == sorted(["other/c", "unet/a", "unet/b", *closed])
    for name in closed:
        assert lines[name].startswith("damaged") and "Permission denied" in lines[name]


def test_listing_does_not_load_torch(three):
    code = """
import sys
from zoerefine.cli import main
assert main(["runs", "--where", "TRAIN.LR>0"]) == 0
assert not {"torch", "numpy", "rich"} & set(sys.modules)
"""
    run_new_python(code)


def test_links_that_lead_in_circles_or_nowhere_do_not_stop_the_list(three):
    (three.folder / "unet/latest").symlink_to("b")
    (three.folder / "unet/round").symlink_to(".")
    (three.folder / "unet/nowhere").symlink_to("gone")
    (three.folder / "unet/loop").symlink_to("loop")
    (three.folder / "loop").symlink_to("loop")
    (three.folder / "up").symlink_to("..")
    assert three.listed("--state", "finished") == ["unet/b", "unet/a"]


def test_runs_that_several_processes_read_are_all_listed(runs):
    for number in range(MANY):
        folder = runs.folder / "many" / f"{number:04d}"
        folder.mkdir(parents=True)
        status = {"state": "finished", "started": 1.7e9 + number, "ended": 1.8e9}
        (folder / "status.json").write_text(json.dumps(status) if number != 7 else "{")
        (folder / "provenance.json").write_text("{}")
    listed = runs.listed("--sort", "name")
    assert sorted(listed) == [f"many/{number:04d}" for number in range(MANY)]
    assert runs.run().out.count("0007/status.json is damaged") == 1


def add_script(runs, name, words, metrics, **status):
    """A run of another repository's script."""
    facts = {"module": "fit.py", "overrides": words, "arguments": ["--fast"]}
    folder = runs.add(name, **facts)
    (folder / "config.yaml").unlink()
    (folder / "results.json").write_text(json.dumps(metrics))
    state = {"state": "finished", "started": 1.7e9, "ended": 1.7e9} | status
    (folder / "status.json").write_text(json.dumps(state))


def test_runs_of_a_script_are_told_apart_by_their_words(runs):
    add_script(runs, "fit/a", ["lr", "0.1", "seed", "1"], {"loss": 0.5})
    add_script(runs, "fit/b", ["lr", "0.1", "note", "x" * 80], {"loss": 0.5})
    first, second = sorted(line[49:] for line in runs.run().out.splitlines()[1:])
    assert first == "fit/a  lr 0.1 seed 1 --fast".replace("  ", " ")
    assert second.endswith("xxx\u2026") and len(second) == len("fit/b ") + 60
    found = json.loads(runs.run("--json").out)["runs"]
    assert {row["words"] for row in found} >= {"lr 0.1 seed 1 --fast"}


def test_a_trial_that_a_search_stopped_is_not_called_killed(runs):
    reason = "pruned at step 2, loss 3"
    add_script(runs, "fit/a", [], {"loss": 0.5}, state="killed", reason=reason)
    printed = runs.run("--state", "killed")
    assert printed.out.splitlines()[1].startswith("pruned ")
    assert "1 run (1 pruned)" in printed.err


def test_the_list_shows_a_metric_of_held_out_data_where_there_is_one(runs):
    metrics = {"epoch": 5, "train_loss": 0.1, "epoch_time": 3, "val_acc": 0.75}
    for name in ("fit/a", "fit/b"):
        add_script(runs, name, [], metrics)
    assert [line.split()[5] for line in runs.run().out.splitlines()[1:]] == ["0.75", "0.75"]
