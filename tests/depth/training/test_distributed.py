"""Training in several real processes: the same metrics, one writer, resumes, a rank that dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.depth.training.ranks import CHECKOUT, Ranks
from zoerefine.base.config import load_config
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.training.job import prepare, run_training

# Adam takes steps of the full rate even for gradients that are rounding errors: a low rate.
COMMON = ("TRAIN.PRECISION", "fp32", "TRAIN.EPOCHS", "2", "LOADER.BATCH", "5", "TRAIN.LR", "3e-4")
TERMS = ("LOSS.TERMS", "[{name: silog, weight: 0.1}, {name: berhu, weight: 1.0}, "
         "{name: gradient, weight: 0.5}, {name: normals, weight: 0.1}]")  # fmt: skip


@pytest.fixture
def alone(train):
    """Train in this process: alone("LOADER.BATCH", 7) -> run."""
    return lambda *words: train(*COMMON, *words, name="alone")


@pytest.fixture
def together(tiny, tmp_path):
    """Train in several processes: together(2, "LOADER.BATCH", 7) -> run."""

    def run(count, *words):
        ranks = Ranks(tmp_path, count, ["--config", tiny, "RUN.NAME", "many", *COMMON, *words])
        assert ranks.wait() == [0] * count, ranks.output
        assert "writing to" in ranks.outputs[0].read_text()
        assert "writing to" not in ranks.outputs[1].read_text()  # rank 0 speaks for all
        return RunDir(next(tmp_path.glob("runs/many/*-*/config.yaml")).parent)

    return run


def assert_same(ours, theirs, rel):
    """The same rows, with losses and metrics equal up to rounding."""
    assert [(r["phase"], r["step"]) for r in ours] == [(r["phase"], r["step"]) for r in theirs]
    for one, two in zip(ours, theirs, strict=True):
        if one["phase"] == "train":
            assert one["loss"] == pytest.approx(two["loss"], rel=rel)
        else:
            assert one["refined"]["abs_rel"] == pytest.approx(two["refined"]["abs_rel"], rel=rel)


# With five samples a batch shares differ, and one rank of four has none of a last batch of three.
@pytest.mark.numeric
@pytest.mark.parametrize("processes", [2, 4])
def test_any_number_of_processes_gives_the_same_metrics(alone, together, processes):
    single, many = alone(*TERMS), together(processes, *TERMS)
    assert_same(many.metrics(), single.metrics(), rel=2e-3)
    ours, theirs = (run.read_json(run.results_file)["test"] for run in (many, single))
    assert ours["detail"]["refined"].keys() == theirs["detail"]["refined"].keys()
    for name, value in theirs["pseudo"].items():  # does not depend on rounding in training
        assert ours["pseudo"][name] == pytest.approx(value, rel=1e-12)
    for name in ("flicker", "boundary_f1", "object_distance_m"):
        value = theirs["detail"]["pseudo"][name]
        assert ours["detail"]["pseudo"][name] == pytest.approx(value, rel=1e-12)
    assert ours["refined"]["abs_rel"] == pytest.approx(theirs["refined"]["abs_rel"], rel=2e-3)
    assert many.read_json(many.provenance_file)["processes"] == processes


@pytest.mark.numeric
def test_parts_of_a_batch_are_the_same_with_any_number_of_processes(alone, together):
    words = ("TRAIN.ACCUMULATE", "2", "LOADER.BATCH", "7")  # and one of one: a rank has none
    single, both = alone(*words), together(2, *words)
    assert min(len(run.metrics()) for run in (single, both)) > 3
    assert_same(both.metrics(), single.metrics(), rel=2e-3)


def test_a_non_finite_loss_ends_all_ranks_and_names_their_frames(tiny, tmp_path):
    words = ("LOADER.BATCH", "2", "TRAIN.LR", "1e30", "TRAIN.CLIP", "1e30", "TRAIN.WARMUP", "0.0",
             "TRAIN.EPOCHS", "20", "TRAIN.CHECKPOINT_S", "0.2")  # fmt: skip
    ranks = Ranks(tmp_path, 2, ["--config", tiny, "RUN.NAME", "nan", *COMMON, *words])
    assert ranks.wait() == [2, 2]
    assert "look at the frames" in ranks.output
    (path,) = tmp_path.glob("runs/nan/*-*/not_finite.json")
    assert len(json.loads(path.read_text())["frames"]) == 2  # one of each rank


LONG = ("TRAIN.CHECKPOINT_S", "0.0", "TRAIN.EPOCHS", "40", "TRAIN.EVAL_EVERY", "40")


def wait_for_checkpoint(folder, name, is_alive):
    """Until a training has written the checkpoint of its third step."""
    end = time.monotonic() + 180
    while not list(folder.glob(f"runs/{name}/*-*/checkpoints/step-0000000[0-9][3-9]*")):
        assert time.monotonic() < end and is_alive()
        time.sleep(0.02)


def test_a_rank_that_dies_ends_a_torchrun_job_and_one_process_resumes_it(tiny, tmp_path):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        CHECKOUT / "platform" / "train.py", "--config", tiny, "RUN.NAME", "dies", *COMMON, *LONG,
    ]  # fmt: skip
    job = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_for_checkpoint(tmp_path, "dies", lambda: job.poll() is None)
    ranks = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(ranks[-1]), signal.SIGKILL)
    _, errors = job.communicate(timeout=180)
    assert job.returncode != 0
    assert "SIGKILL" in errors or "-9" in errors
    run = RunDir(next(tmp_path.glob("runs/dies/*-*/config.yaml")).parent)
    assert not run.results_file.exists()
    reached = run.metrics()[-1]["step"]
    assert reached >= 3
    began = run.metrics_file.stat().st_size
    assert run_training(load_config(run.config_file)) == run
    steps = [row["step"] for row in run.metrics() if row["phase"] == "train"]
    assert steps == list(range(1, steps[-1] + 1))  # no row twice, none missing
    assert run.metrics_file.stat().st_size > began


def test_ctrl_c_stops_all_ranks_at_one_step_with_a_checkpoint(tiny, tmp_path):
    ranks = Ranks(tmp_path, 2, ["--config", tiny, "RUN.NAME", "stops", *COMMON, *LONG])
    wait_for_checkpoint(tmp_path, "stops", lambda: all(p.is_alive() for p in ranks.processes))
    for process in ranks.processes:
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.01)
    assert ranks.wait() == [130, 130], ranks.output
    run = RunDir(next(tmp_path.glob("runs/stops/*-*/config.yaml")).parent)
    assert run.status().state == "killed"
    last = max(run.checkpoints.glob("step-*")).name
    assert int(last.split("-")[1]) == run.metrics()[-1]["step"]


def test_damaged_records_end_all_ranks_and_name_their_frame(tiny, tmp_path):
    words = ["RUN.NAME", "damaged", "CACHE.ROOT", "own", *COMMON, "LOADER.BATCH", "4"]
    cache, _ = prepare(load_config(tiny, words))
    with open(cache.folder / "records.bin", "r+b") as file:
        file.seek(5 * cache.stride)
        file.write(b"x" * 3000)
    ranks = Ranks(tmp_path, 2, ["--config", tiny, *words])
    assert ranks.wait() == [2, 2], ranks.output
    for output in ranks.outputs:
        errors = [line for line in output.read_text().splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and cache.frame_name(5) in errors[0], ranks.output
    assert "Traceback" not in ranks.output
    assert not list(tmp_path.glob("runs/damaged/*/results.json"))
    assert not list(tmp_path.glob("runs/damaged/*/checkpoints"))
