"""Training by several real processes: the same metrics, one writer, resumes, a rank that dies."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from zoerefine.run_dir import RunDir


def command(tiny, name, processes, *words):
    # At a low rate, since Adam makes steps of the full rate of gradients that are mere rounding.
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(processes), os.path.join(os.path.dirname(__file__), "../../platform/train.py"),
        "--config", str(tiny), "RUN.NAME", name, "TRAIN.PRECISION", "fp32", "TRAIN.EPOCHS", "3",
        "LOADER.BATCH", "5", "TRAIN.LR", "3e-4", *words,
    ]  # fmt: skip


def train(tmp_path, tiny, name, processes, *words):
    done = subprocess.run(
        command(tiny, name, processes, *words), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1  # one speaks for all
    return RunDir(tmp_path / done.stdout.splitlines()[-1])


def rows(run):
    return [json.loads(line) for line in run.metrics_file.read_text().splitlines()]


def same(ours, theirs, rel):
    assert [(r["phase"], r["step"]) for r in ours] == [(r["phase"], r["step"]) for r in theirs]
    for one, two in zip(ours, theirs, strict=True):
        if one["phase"] == "train":
            assert one["loss"] == pytest.approx(two["loss"], rel=rel)
        else:
            assert one["refined"]["abs_rel"] == pytest.approx(two["refined"]["abs_rel"], rel=rel)


TERMS = ("LOSS.TERMS", "[{name: silog, weight: 0.1}, {name: berhu, weight: 1.0}, "
         "{name: gradient, weight: 0.5}, {name: normals, weight: 0.1}]")  # fmt: skip


# Five samples a batch: shares differ, and of an epoch's last batch of three one of four has none.
@pytest.mark.parametrize("processes", [2, 4])
def test_any_number_of_processes_gives_the_same_metrics(tmp_path, tiny, processes):
    alone = train(tmp_path, tiny, "alone", 1, *TERMS)
    many = train(tmp_path, tiny, "many", processes, *TERMS)
    same(rows(many), rows(alone), rel=2e-3)
    ours, theirs = (run.read_json(run.results_file)["test"] for run in (many, alone))
    assert ours["detail"]["refined"].keys() == theirs["detail"]["refined"].keys()
    for name, value in theirs["pseudo"].items():  # what no rounding of training changes
        assert ours["pseudo"][name] == pytest.approx(value, rel=1e-12)
    for name in ("flicker", "boundary_f1", "object_distance_m"):
        value = theirs["detail"]["pseudo"][name]
        assert ours["detail"]["pseudo"][name] == pytest.approx(value, rel=1e-12)
    assert ours["refined"]["abs_rel"] == pytest.approx(theirs["refined"]["abs_rel"], rel=2e-3)
    assert many.read_json(many.provenance_file)["processes"] == processes


def test_parts_of_a_batch_are_the_same_with_any_number_of_processes(tmp_path, tiny):
    words = ("TRAIN.ACCUMULATE", "2", "LOADER.BATCH", "7")  # and one of one: a rank has none
    alone = train(tmp_path, tiny, "alone", 1, *words)
    both = train(tmp_path, tiny, "both", 2, *words)
    assert min(len(rows(run)) for run in (alone, both)) > 3
    same(rows(both), rows(alone), rel=2e-3)


def test_a_loss_that_is_no_number_ends_all_ranks_and_names_their_frames(tmp_path, tiny):
    words = ("LOADER.BATCH", "2", "TRAIN.LR", "1e30", "TRAIN.CLIP", "1e30", "TRAIN.WARMUP", "0.0")
    # Ranks do not agree on whether so short a time is over.
    done = subprocess.run(
        command(tiny, "nan", 2, *words, "TRAIN.CHECKPOINT_S", "0.2"),
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    assert "look at the frames" in done.stderr
    (path,) = tmp_path.glob("runs/nan/*/not_finite.json")
    assert len(json.loads(path.read_text())["frames"]) == 2  # one of each rank


def start(tmp_path, tiny, name, processes):
    """A training that has written a checkpoint, and the processes of its ranks."""
    words = ["TRAIN.CHECKPOINT_S", "0.0", "TRAIN.EPOCHS", "200"]
    job = subprocess.Popen(command(tiny, name, processes, *words), cwd=tmp_path,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    end = time.monotonic() + 120
    while not list(tmp_path.glob(f"runs/{name}/*/checkpoints/step-00000000[3-9]*")):
        assert time.monotonic() < end and job.poll() is None
        time.sleep(0.05)
    path = f"/proc/{job.pid}/task/{job.pid}/children"
    with open(path) as file:
        return job, [int(child) for child in file.read().split()]


def test_a_rank_that_dies_ends_the_job_and_fewer_go_on(tmp_path, tiny):
    job, ranks = start(tmp_path, tiny, "dies", 2)
    os.kill(ranks[-1], signal.SIGKILL)
    _, errors = job.communicate(timeout=120)
    assert job.returncode != 0
    assert "SIGKILL" in errors or "-9" in errors
    run = RunDir(next(tmp_path.glob("runs/dies/*/config.yaml")).parent)
    assert not run.results_file.exists()
    reached = rows(run)[-1]["step"]
    assert reached >= 3
    config = tmp_path / "again.yaml"
    config.write_text(run.config_file.read_text())
    again = subprocess.Popen(
        command(config, "dies", 1, "TRAIN.EPOCHS", "200", "TRAIN.CHECKPOINT_S", "0.0"),
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in again.stderr:
        if "going on from step" in line:
            break
    else:
        raise AssertionError("it began anew")
    again.terminate()
    again.communicate(timeout=120)
    steps = [row["step"] for row in rows(run) if row["phase"] == "train"]
    assert steps == sorted(set(steps))  # no row twice


def test_ctrl_c_stops_all_ranks_at_one_step_with_a_checkpoint(tmp_path, tiny):
    job, ranks = start(tmp_path, tiny, "stops", 2)
    for rank in ranks:
        os.kill(rank, signal.SIGINT)
        time.sleep(0.01)
    job.communicate(timeout=120)
    assert job.returncode != 0
    run = RunDir(next(tmp_path.glob("runs/stops/*/config.yaml")).parent)
    assert run.status().state == "killed"
    last = max(run.checkpoints.glob("step-*")).name
    assert int(last.split("-")[1]) == rows(run)[-1]["step"]
