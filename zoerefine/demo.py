"""The demo: the commands that a user would type, one after the other, and a table at the end."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from zoerefine.data.dataset import Dataset, Frame
from zoerefine.data.readers import open_dataset
from zoerefine.errors import UserError
from zoerefine.files import write_json
from zoerefine.metrics import LOWER_IS_BETTER
from zoerefine.run_dir import RunDir

CHECKOUT = Path(__file__).resolve().parents[1]
STUDY = Path("runs/demo/latest")
SYNTHETIC = Path("data/synthetic")
SYNTHETIC_SIZE = ("--scenes", 20, "--clips", 1, "--frames", 12)
FEW_SCENES = 8
SHOWN = ("abs_rel", "rmse", "log10", "silog", "delta1", "delta2")


def run_demo(data: Path | None) -> None:
    """Go the whole way in this checkout; `data` is a folder of real frames, or None.

    Raises:
        UserError: a step failed; its own message stands above.
    """
    if not (CHECKOUT / ".git").exists():
        raise UserError(f"the demo launches its own repository, and {CHECKOUT} is no git clone")
    start = time.monotonic()
    os.chdir(CHECKOUT)
    if data is None:
        heading("1/6 a small synthetic world in HabitatDyn's layout")
        command("data", "synthesize", SYNTHETIC, *SYNTHETIC_SIZE)
        data = SYNTHETIC
    else:
        heading(f"1/6 the frames in {data}")
        command("data", "inspect", data)
    dataset = open_dataset(data)

    heading("2/6 this repository's HEAD in a workspace of its own: pack, search, train the best")
    launch(dataset)
    study = RunDir(STUDY.resolve())
    best = RunDir(study.path / "best")
    results = best.read_json(best.results_file)

    heading("3/6 the best refiner becomes an engine bundle")
    command("export", shown(best.path))
    heading("4/6 the bundle refines a scene that training never saw")
    picture = infer(dataset, results["scenes"]["test"][0], study, best)
    heading("5/6 all trials in one graph")
    command("analyze", shown(study.path), "--out", shown(study.report))

    summary = summarize(study, best, results, picture)
    write_json("runs/demo/summary.json", summary)
    heading(f"6/6 what was measured, in {time.monotonic() - start:.0f} s")
    print_tables(summary)


def heading(title: str) -> None:
    """Print a step's title."""
    print(f"\n=== {title}", flush=True)


def command(script: str, *words: object) -> None:
    """Run one of the scripts in platform/, shown as a user would type it."""
    argv = [f"platform/{script}.py", *map(str, words)]
    print(f"$ python {shlex.join(argv)}", flush=True)
    code = subprocess.run([sys.executable, *argv], check=False).returncode
    broken_frames = script in ("data", "infer") and code == 1  # named, and left out
    if code and not broken_frames:
        raise UserError(f"the demo stopped: {argv[0]} ended with exit code {code}, see above")


def shown(path: Path) -> Path:
    """A path of this checkout as a user would write it."""
    return path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path


def launch(dataset: Dataset) -> None:
    """Search and train from this repository's own HEAD."""
    overrides: list[object] = ["DATA.ROOT", shown(dataset.root)]
    if len(dataset.scenes) < FEW_SCENES:  # a share of so few is none: the last one is the test
        last = str([dataset.scenes[-1]])
        overrides += ["DATA.TEST_FRACTION", "0.0", "DATA.TEST_SCENES", last]
    command(
        "run_from_commit",
        *("--repo", ".", "--commit", "HEAD", "--allow-dirty"),
        *("--config", "configs/demo.yaml", "--module", "platform/search.py"),
        *overrides,
    )


def infer(dataset: Dataset, scene: str, study: RunDir, best: RunDir) -> Path:
    """Refine a clip of a test scene; returns the side-by-side picture."""
    frame = next(frame for frame in dataset.frames if frame.scene == scene)
    picture = study.path / "refined" / f"{frame.clip}.png"
    command(
        "infer",
        shown(best.bundle),
        *folders(frame),
        *("--out", shown(study.path / "refined" / frame.clip)),
        *("--picture", shown(picture)),
    )
    return picture


def folders(frame: Frame) -> list[object]:
    """The options that name a clip's folders."""
    words: list[object] = ["--rgb", shown(frame.rgb.parent)]
    if frame.zoe:
        words += ["--depth", shown(frame.zoe.parent)]
    if frame.depth:
        words += ["--eval", shown(frame.depth.parent)]
    return words


def summarize(
    study: RunDir, best: RunDir, results: dict[str, Any], picture: Path
) -> dict[str, Any]:
    """What `summary.json` holds: measured numbers, and where everything lies."""
    from zoerefine.export.bundle import read_manifest

    made = read_manifest(best.bundle)
    test = results["test"]
    paths = {
        "study": study.path,
        "best run": best.path,
        "best config": study.path / "best.yaml",
        "engine bundle": best.bundle,
        "refined depth": picture.with_suffix("") / "depth",
        "side by side": picture,
        "graph": study.report / "overview.png",
        "table of trials": study.report / "runs.csv",
        "TensorBoard logs": best.tensorboard,
    }
    return {
        "data": results["data"],
        "pseudo_label": results["pseudo_label"],
        "commit": made["commit"],
        "test_scenes": {name: values for name, values in results["test_scenes"].items()},
        **{which: test[which] for which in ("pseudo", "global_scale", "refined", "shuffled")},
        "untrained_max_change_m": results["untrained_max_change_m"],
        "engine": {
            "kind": f"{made['engine']} {made['precision']}",
            "latency_ms": made["latency_ms"],
            "eager_ms": made["eager_ms"],
            "max_abs_err_m": made["max_abs_err_m"],
        },
        "paths": {name: str(path) for name, path in paths.items()},
    }


def print_tables(summary: dict[str, Any]) -> None:
    """The measured numbers for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=120 if not sys.stdout.isatty() else None)
    scenes = ", ".join(summary["test_scenes"])
    table = Table(title=f"{summary['data']}: scenes that training never saw ({scenes})")
    table.add_column("depth")
    for name in SHOWN:
        table.add_column(f"{name} {'↓' if name in LOWER_IS_BETTER else '↑'}", justify="right")
    label = summary["pseudo_label"]
    for which, title in (
        ("pseudo", f"{label}, as it is"),
        ("global_scale", f"{label}, best single factor of the training scenes"),
        ("refined", "refined"),
        ("shuffled", f"refined, given another scene's {label}"),
    ):
        table.add_row(title, *(f"{summary[which][name]:.3f}" for name in SHOWN))
    console.print(table)
    for scene, values in summary["test_scenes"].items():
        before, after = (values[which]["abs_rel"] for which in ("pseudo", "refined"))
        console.print(f"{scene}: abs_rel {before:.3f} before, {after:.3f} refined")
    console.print(
        f"an untrained refiner changes its input by {summary['untrained_max_change_m']} m at most"
    )
    engine = summary["engine"]
    console.print(
        f"engine {engine['kind']}: {engine['latency_ms']:.1f} ms a frame, eager "
        f"{engine['eager_ms']:.1f} ms ({engine['eager_ms'] / engine['latency_ms']:.2f}x), at most "
        f"{engine['max_abs_err_m']:.3f} m from eager"
    )
    for name, path in summary["paths"].items():
        console.print(f"{name:<16} {shown(Path(path))}", soft_wrap=True, highlight=False)
