"""Whole trainings to results.json: do they end, and with the same bits when repeated or killed?"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from common.report import Row, row
from rows import failure
from world import config, make_world
from yacs.config import CfgNode

from zoerefine.base.config import merge, save_config
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.exporting.bundle.bundle import read_manifest
from zoerefine.depth.exporting.export import export
from zoerefine.depth.training.job import run_training

TRAIN = """
import sys
from zoerefine.base.config import load_config
from zoerefine.depth.training.job import run_training
print(run_training(load_config(sys.argv[1])).path)
"""
LONGEST_S = 100


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """Each training is a part: one that fails gives a row with the reason."""
    scenes, frames, height, width = (4, 4, 48, 64) if small else (16, 16, 192, 256)
    make_world(folder / "world", scenes, frames, height, width)
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        precision: partial(of_precision, folder, small, precision)
        for precision in (("fp32",) if small else ("fp16", "fp32"))
    }
    parts["with points"] = partial(with_points, folder, small)
    parts["exported"] = partial(exported, folder, small)
    for name, part in parts.items():
        try:
            yield from part()
        except Exception as error:
            yield failure(f"whole run {name}", error)


def of_precision(folder: Path, small: bool, precision: str) -> Iterator[Row]:
    """A run, the same again, and once killed and resumed, with a checkpoint after every step."""
    label = f"whole run {precision}"
    start = time.perf_counter()
    first = run_training(configured(folder, small, precision, f"{precision}-first"))
    yield row(f"{label}: seconds to the end", time.perf_counter() - start, "s")
    yield row(f"{label}: training", first.results()["images_per_s"], "images/s")
    again = run_training(configured(folder, small, precision, f"{precision}-again"))
    same = weights(first) == weights(again)
    yield row(f"{label}: the same bits twice", float(same), "", 1.0)
    often = configured(folder, small, precision, f"{precision}-killed", TRAIN={"CHECKPOINT_S": 0.0})
    resumed = killed_and_resumed(folder, often)
    same = weights(first) == weights(resumed)
    yield row(f"{label}: the same bits after a kill and a resume", float(same), "", 1.0)


def with_points(folder: Path, small: bool) -> Iterator[Row]:
    """A refiner that takes metric points, in strict mode."""
    start = time.perf_counter()
    run_training(configured(folder, small, "auto", "points", MODEL={"POINTS": True}))
    yield row("whole run with points: seconds to the end", time.perf_counter() - start, "s")


def exported(folder: Path, small: bool) -> Iterator[Row]:
    """The fastest torchscript engine of a run, which the export compares with eager."""
    uncalibrated = configured(folder, small, "auto", "export", TRAIN={"CALIBRATE": False})
    run = run_training(uncalibrated)
    manifest = read_manifest(export(run, "torchscript", "auto"))
    label = f"whole run exported as {manifest['engine']} {manifest['precision']}"
    yield row(f"{label}: latency", manifest["latency_ms"], "ms")
    yield row(f"{label}: mean difference from eager", 100 * manifest["mean_rel_err"], "%")


def configured(
    folder: Path, small: bool, precision: str, name: str, **more: dict[str, object]
) -> CfgNode:
    """The default config, for a small world and few epochs."""
    cfg = config(small, PRECISION=precision, EPOCHS=1 if small else 4)
    cfg.defrost()
    height, width = (48, 64) if small else (192, 256)
    changes = {
        "DATA": {"ROOT": str(folder / "world")},
        "CACHE": {"HEIGHT": height, "WIDTH": width, "ROOT": str(folder / "caches")},
        "RUN": {"NAME": name, "ROOT": str(folder / "runs")},
        "LOADER": {"BATCH": 4 if small else 32},
    }
    for part in changes, more:
        merge(cfg, part, "on_gpu")
    cfg.freeze()
    return cfg


def weights(run: RunDir) -> str:
    """The digest of a run's best weights."""
    return run.weights_digest_file.read_text().split()[0]


def killed_and_resumed(folder: Path, cfg: CfgNode) -> RunDir:
    """Train in another process, kill it at a checkpoint, and start the same command again."""
    path = folder / f"{cfg.RUN.NAME}.yaml"
    save_config(cfg, path)
    words = [sys.executable, "-W", "ignore", "-c", TRAIN, str(path)]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + LONGEST_S
    pattern = f"{cfg.RUN.NAME}/*/checkpoints/step-*.pt"
    while not (found := any((folder / "runs").glob(pattern))):
        if child.poll() is not None or time.monotonic() > end:
            break
        time.sleep(0.02)
    child.kill()
    child.wait()
    if not found:
        raise RuntimeError("the training ended, or took too long, before it could be killed")
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return RunDir(Path(done.stdout.splitlines()[-1]))
