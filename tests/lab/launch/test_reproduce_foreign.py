"""Reproduce a run of any script: its metrics at every step, and the files that it left."""

import json
import shutil

import pytest

from tests.foreign import KINDS, commit_files, write_files
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.record.comparison import compare_results
from zoerefine.lab.launch.record.times_and_speeds import is_time


@pytest.fixture
def run_of(foreign_repository, command, tmp_path):
    """Launch the script of a kind: run_of(kind) -> its run.

    `file`: first commit another text of this file, `edited` from its own.
    """

    def launch(kind, file=None, edited=None):
        repository = foreign_repository(kind)
        if file:
            repository.edit(file, edited)
        command("run", *repository.job(), "--name", "mnist")
        return RunDir((tmp_path / "runs/mnist/latest").resolve())

    return launch


@pytest.fixture
def run_of_code(command, tmp_path):
    """Launch a script with this text: run_of_code(text, *words) -> its run's path."""

    def launch(text, *words):
        commit_files(tmp_path / "code", {"train.py": text})
        command("run", "--repo", "code", "--commit", "HEAD", "--module", "train.py", *words)
        return tmp_path / "runs/train/latest"

    return launch


@pytest.mark.parametrize("kind", KINDS)
def test_equal_metrics_and_files_are_reproduced(run_of, command, kind):
    done = command("reproduce", run_of(kind).path, "--compare", "*model.txt")
    assert "REPRODUCED" in done.stdout and "exactly the same" in done.stdout


def test_a_script_that_is_not_deterministic_is_named_with_the_difference(run_of, command):
    seeded, unseeded = 'random.Random(f"{seed} {epoch}")', "random.Random()"
    run = run_of("argparse_csv", "training.py", lambda text: text.replace(seeded, unseeded))
    done = command("reproduce", run.path, "--compare", "*.txt", code=1)
    assert "NOT REPRODUCED" in done.stdout
    assert "val_acc at step" in done.stdout and "model.txt" in done.stdout
    assert "MISMATCH" in done.stdout and "(+" in done.stdout + done.stdout.replace("(-", "(+")


def ended_run(folder, values, first_step=0):
    """A run of a script with these values of a metric, one a step."""
    run = RunDir(folder)
    run.path.mkdir()
    run.provenance_file.write_text('{"module": "train.py"}')
    run.status_file.write_text('{"state": "finished"}')
    rows = ({"step": first_step + i, "residual": value} for i, value in enumerate(values))
    run.metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def test_values_at_every_step_are_compared_after_millions_of_steps_too(tmp_path):
    first = ended_run(tmp_path / "a", [0.1, 0.2, 0.3, 0.4], 12_345_670)
    again = ended_run(tmp_path / "b", [0.1, 0.9, 0.3, 0.4], 12_345_670)
    different = [c.what for c in compare_results(first, again, 0.0) if c.verdict != "same"]
    assert different == ["residual at step 12345671"]


def test_a_job_with_times_alone_is_compared_by_its_other_files(tmp_path):
    first, again = (ended_run(tmp_path / name, []) for name in "ab")
    for run, seconds in ((first, 1.5), (again, 2.5)):
        run.metrics_file.write_text(json.dumps({"step": 1, "wall_time": seconds}) + "\n")
        outputs = {"metrics.jsonl": str(seconds), "model.txt": "12ab"}
        run.provenance_file.write_text(json.dumps({"module": "train.py", "outputs": outputs}))
    found = [(one.what, one.verdict) for one in compare_results(first, again, 0.0)]
    assert found == [("model.txt", "same"), ("wall_time", "speed")]


@pytest.mark.parametrize(
    ("values", "now", "verdict"),
    [
        ([2e-10, 1e-10], [2e-10, 3e-10], "MISMATCH"),  # as with values of 2 and 1
        ([2e-10, 1e-10], [2e-10, 1.01e-10], "differs"),
        ([1.0, 0.0], [1.0, 1e-12], "differs"),  # rounding, beside the metric's other values
        ([0.0, 0.0], [0.0, 1e-12], "differs"),
    ],
)
def test_the_tolerance_of_a_metric_does_not_depend_on_its_unit(tmp_path, values, now, verdict):
    first, again = ended_run(tmp_path / "a", values), ended_run(tmp_path / "b", now)
    found = {c.what: c.verdict for c in compare_results(first, again, 0.02)}
    assert found["residual at step 1"] == found["residual"] == verdict


@pytest.mark.parametrize("tolerance", ["nan", "-0.1", "inf"])
def test_a_tolerance_that_is_none_is_refused_before_the_job_runs(command, tmp_path, tolerance):
    run = ended_run(tmp_path / "a", [1.0])
    done = command("reproduce", run.path, "--tolerance", tolerance, code=2)
    assert done.stderr == f"error: --tolerance must be from 0 to 1, got {tolerance}\n"  # fmt: skip


def test_a_pattern_without_a_file_is_refused_before_the_job_runs(run_of, command):
    run = run_of("argparse_csv")
    assert "results/model.txt" in command("reproduce", run.path, "--compare", "*.pt", code=2).stderr
    assert not run.path.with_name(f"{run.path.name}-again1").exists()


DATED = """
import datetime, pathlib
out = pathlib.Path(f"outputs/{datetime.datetime.now():%Y-%m-%d_%H-%M-%S-%f}")
out.mkdir(parents=True)
(out / "model.txt").write_text("0.25")
"""


@pytest.mark.parametrize("words", [(), ("--compare", "*model.txt")])
def test_a_file_in_a_folder_by_date_is_compared_with_that_of_the_other_date(
    run_of_code, command, words
):
    done = command("reproduce", run_of_code(DATED), *words)
    assert "REPRODUCED: 1 value" in done.stdout, done.stdout + done.stderr


DUMP = "import json, os, time\njson.dump({}, open('results.json', 'w'))\n"


@pytest.mark.parametrize(
    ("results", "line"),
    [
        ('{"b": 1.0, "acc": [0.5, time.time()]}', "acc[1]"),
        ('{"b": 1.0, "folds": [{"acc": time.time()}]}', "folds[0].acc"),
        ('{"b": 1.0} | ({"c": 2.0} if "again" in os.environ["ZOEREFINE_RUN_FOLDER"] else {})', "c"),
    ],
)
def test_numbers_in_lists_and_those_of_the_repetition_alone_are_compared(
    run_of_code, command, results, line
):
    done = command("reproduce", run_of_code(DUMP.format(results)), code=1)
    assert f" {line} " in done.stdout and "NOT REPRODUCED: " in done.stdout, done.stdout


def test_times_are_not_compared(run_of, run_of_code, command):
    def timed(text):
        named = text.replace('"note"', '"epoch time"')
        return "import time\n" + named.replace('"fine"', "time.time()")

    command("reproduce", run_of("argparse_csv", "train.py", timed).path)
    lists = "{'b': 1.0, 'epoch_s': [time.time()], 'folds': [{'eval_ms': time.time()}]}"
    command("reproduce", run_of_code(DUMP.format(lists)))


def test_what_other_nodes_left_is_not_compared(run_of, command):
    run = run_of("argparse_csv").path
    files = {"results.json": '{"loss": 0.5}', "weights.sha256": "ab" * 32}
    write_files(run / "node-1" / "left", files)
    assert "weights" not in command("show", run).stdout
    command("reproduce", run)


def test_hidden_folders_of_a_run_are_no_results(run_of, command):
    hidden = """
import os
run = Path(os.environ["ZOEREFINE_RUN_FOLDER"])
(run / ".parts/0").mkdir(parents=True)
(run / ".parts/0/state.json").write_text("{}")
(run / "notes.txt").write_text("done")
"""
    run = run_of("plain_prints", "main.py", lambda text: text + hidden)
    names = ["left/checkpoint.json", "left/model.txt", "notes.txt"]
    assert list(run.read_json(run.provenance_file)["outputs"]) == names
    shutil.rmtree(run.path / ".parts")
    command("reproduce", run.path)


TIMED = """
import time
print("epoch 1 loss=0.5 noise=%r SPS=%r" % (time.time(), time.time()))
print("centimeter 3.5")
print("charts/SPS 4", time.time())
"""
NAMED = r"--metric-pattern=epoch (?P<step>\d+) loss=(\S+) noise=(\S+) SPS=(\S+)"


@pytest.fixture
def timed(run_of_code):
    """A run whose script prints a result, a speed and a value that is never the same."""
    return run_of_code(TIMED, NAMED, r"--metric-pattern=centimeter (\S+)")


def test_speeds_are_shown_and_never_decide(timed, command):
    done = command("reproduce", timed, code=1)
    assert "SPS" in done.stdout, done.stdout + done.stderr
    assert "2 of 6 values differ (not counted: 1 speed)" in " ".join(done.stdout.split())


def test_ignored_values_do_not_decide(timed, command):
    done = command("reproduce", timed, "--ignore", "noi*", "--ignore", "centi*")
    text = " ".join(done.stdout.split())
    assert "2 values are exactly the same (not counted: 1 speed, 2 ignored)" in text
    refused = command("reproduce", timed, "--ignore", "nosie", code=2)
    assert "centimeter, loss, noise" in refused.stderr


def test_a_repetition_that_is_there_is_named(timed, command):
    command("reproduce", timed, code=1)
    done = command("reproduce", timed, "--ignore", "noise")
    said = "compared with the repetition of before; --fresh runs the job once more"
    assert said in " ".join(done.stdout.split())
    assert said not in command("reproduce", timed, "--ignore", "noise", "--fresh").stdout


@pytest.mark.parametrize(
    ("value", "code", "line"),
    [
        ("2.5", 0, "REPRODUCED: 2 values are exactly the same"),
        ("time.time()", 1, "NOT REPRODUCED: nothing to compare (not counted: 2 speeds)"),
    ],
)
def test_times_alone_reproduce_a_run_where_they_are_the_same(
    run_of_code, command, value, code, line
):
    text = f"import time\nprint('fps=30.0 total_s=%r' % {value})\n"
    run = run_of_code(text, r"--metric-pattern=fps=(\S+) total_s=(\S+)")
    done = command("reproduce", run, code=code)
    assert line in " ".join(done.stdout.split()), done.stdout


def test_an_error_of_a_speed_is_no_speed(run_of_code, command):
    results = "{'b': 1.0, 'speed_mae': time.time(), 'coco.bbox_mAP_s': time.time()}"
    done = command("reproduce", run_of_code(DUMP.format(results)), code=1)
    assert "6 of 9 values differ" in " ".join(done.stdout.split())


SPEEDS = """charts/SPS it_per_s avgfps stepTime runtime eval/steps_per_second eta dt train_s
    tokens/s time_per_batch runtime.mean walltime_total uptime/avg total_s val_mean_s time_s
    images_per_s wait_share mean_score_time step/p95_s latency_ms date peak_gib"""
OTHERS = """loss error_centimeter sentiment timesteps lifetime_value runtime_error ms_ssim
    val/speed_mae tts/duration_loss coco/bbox_mAP_s ner/DATE/f1 ner/DATE/support ms_coco/bleu4
    time_series/mse AP_s AP50_s dice_s ms_marco/ndcg@10 wind_speed_rmse timesnet_mse dt_mIoU
    survivalTimeMAE wall_distance correct_share timestamp_iou theta_s update"""


def test_what_counts_as_a_speed():
    assert [name for name in SPEEDS.split() if not is_time(name)] == []
    assert [name for name in OTHERS.split() if is_time(name)] == []
