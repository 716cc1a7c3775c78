"""zoerefine demo: the commands from a commit to refined depth, one by one, and their results."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoerefine.base.config.paths import example_file
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_json
from zoerefine.base.messages import counted, is_quiet
from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.base.run_dir import RunDir
from zoerefine.commands.options import Parser, add_shared
from zoerefine.lab.launch.git.commands import git

if TYPE_CHECKING:
    from zoerefine.depth.data.dataset import Dataset, Frame

CHECKOUT = Path(__file__).resolve().parents[2]
OWN_FOLDER = Path("zoerefine-demo")  # without a checkout
CONFIG = Path("configs/demo.yaml")
# The script that a launch runs in a repository of the demo's own; a checkout has its own modules.
SCRIPT = Path("search.py")
SCRIPT_TEXT = """\
import sys

from zoerefine.cli import main

sys.exit(main(["search", *sys.argv[1:]]))
"""
RUNS, NAME = Path("runs"), "demo"
SYNTHETIC = Path("data/synthetic")
SYNTHETIC_SIZE = ("--scenes", 20, "--clips", 1, "--frames", 12)
FEW_SCENES = 8  # with fewer, shares of the scenes give no test scene
LEAST_SCENES = 3  # for training, validation and test
DEPTHS = "pseudo", "global_scale", "points", "refined", "refined_points"
SHOWN = ("abs_rel", "rmse", "log10", "silog", "delta1", "delta2")


def main(argv: Sequence[str]) -> int:
    """Run the demo."""
    parser = Parser(
        "zoerefine demo",
        "Run every step on a small data set: launch a commit, pack, search, train, "
        "export, infer, analyse. All is written into the checkout that zoerefine runs from; where "
        "it is installed without one, into ./zoerefine-demo, a git repository that is made for "
        "it. Valid results of an earlier demo are reused.",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="real frames instead of the synthetic world: a HabitatDyn folder, a folder with a "
        "frames.csv, a TUM recording or ScanNet folders",
    )
    add_shared(parser, "--quiet")
    args = parser.parse_args(argv)

    run_demo(Path(args.data).resolve() if args.data else None)
    return 0


def run_demo(data: Path | None) -> None:
    """Run every step in this checkout; without one in `zoerefine-demo`, a git repository.

    Args:
        data: a folder of real frames; None: a synthetic world is made first.

    Raises `UserError` where the frames have no pseudo depth, or a step failed and printed why.
    """
    from zoerefine.depth.data.cache.pack import cache_digest
    from zoerefine.depth.data.layouts.readers import open_dataset

    start, name = time.monotonic(), NAME
    if data is not None:
        dataset = open_dataset(data)
        require_pseudo_depth(dataset)
        require_scenes(dataset)
        name += f"-{cache_digest(dataset, 96, 128)[:8]}"  # corrected data are other data
    os.chdir(demo_repository())
    print(f"writing into {Path.cwd()}", flush=True)
    if data is None:
        heading("1/6 write a small synthetic world in HabitatDyn's layout")
        command("data", "synthesize", SYNTHETIC, *SYNTHETIC_SIZE)
        dataset = open_dataset(SYNTHETIC)
    else:
        heading(f"1/6 inspect the frames in {data}")
        command("data", "inspect", data)

    heading("2/6 check out HEAD into a workspace; there pack, search, and train the best trial")
    launch(dataset, name)
    study = RunDir((RUNS / name / "latest").resolve())
    best = RunDir(study.path / "best")
    results = best.read_json(best.results_file)

    heading("3/6 export the best refiner to an engine bundle")
    command("export", shown(best.path))
    heading("4/6 refine a held-out scene with the bundle")
    picture = infer(dataset, results["scenes"]["test"][0], study, best)
    heading("5/6 compare all trials in one graph")
    command("analyze", shown(study.path), "--out", shown(study.report))

    summary = summarize(study, best, results, picture)
    write_json(RUNS / name / "summary.json", summary)
    heading(f"6/6 results, after {time.monotonic() - start:.0f} s")
    print_tables(summary)


def demo_repository() -> Path:
    """This checkout; where zoerefine is installed without one, a repository made in this folder."""
    if (CHECKOUT / ".git").exists():
        return CHECKOUT
    folder = OWN_FOLDER.resolve()
    if not (folder / ".git").exists():
        (folder / CONFIG).parent.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_bytes(example_file(CONFIG.stem).read_bytes())
        (folder / SCRIPT).write_text(SCRIPT_TEXT)
        (folder / ".gitignore").write_text("/data/\n/caches/\n/runs/\n")
        git("init", "--quiet", folder=folder)
        git("add", ".", folder=folder)
        who = ("-c", "user.name=zoerefine demo", "-c", "user.email=demo@localhost")
        git(*who, "commit", "--quiet", "--no-verify", "--message", "The demo", folder=folder)
    return folder


def require_scenes(dataset: "Dataset") -> None:
    """Raise `UserError` for fewer scenes than a split needs."""
    if len(dataset.scenes) < LEAST_SCENES:
        raise UserError(
            f"{dataset.root} has {counted(len(dataset.scenes), 'scene')}, and the demo needs "
            f"{LEAST_SCENES}: for training, validation and test"
        )


def require_pseudo_depth(dataset: "Dataset") -> None:
    """Raise `UserError` where frames have no pseudo depth, before hours are spent on the others."""
    missing = sum(frame.zoe is None for frame in dataset.frames)
    if missing:
        raise UserError(
            f"{missing} of {len(dataset.frames)} frames in {dataset.root} have no pseudo depth: "
            f"make it with `zoerefine data pseudo {shlex.quote(str(dataset.root))}`, then run "
            "the demo again"
        )


def heading(title: str) -> None:
    """Print a step's title."""
    if not is_quiet():
        print(f"\n=== {title}", flush=True)


def command(name: str, *words: object) -> None:
    """Print a command as a user would type it, and run it."""
    argv = [name, *map(str, words)]
    if is_quiet():
        argv.append("--quiet")
    else:
        print(f"$ zoerefine {shlex.join(argv)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "zoerefine", *argv], check=False).returncode
    only_broken_frames = name in ("data", "infer") and code == 1  # they are named and left out
    if code and not only_broken_frames:
        raise UserError(f"the demo stopped: {name} failed with exit code {code}, see above")


def shown(path: Path) -> Path:
    """A path as a user would write it in the demo's folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def launch(dataset: "Dataset", name: str) -> None:
    """Search and train from the HEAD of the demo's repository."""
    overrides: list[object] = ["DATA.ROOT", shown(dataset.root)]
    if name != NAME:
        overrides += ["RUN.NAME", name]
    if len(dataset.scenes) < FEW_SCENES:  # the last one becomes the test scene
        last = str([dataset.scenes[-1]])
        overrides += ["DATA.TEST_FRACTION", "0.0", "DATA.TEST_SCENES", last]
    module = SCRIPT if SCRIPT.exists() else "zoerefine.search"
    command(
        "run",
        *("--repo", ".", "--commit", "HEAD", "--allow-dirty"),
        *("--config", CONFIG, "--module", module),
        *overrides,
    )


def infer(dataset: "Dataset", scene: str, study: RunDir, best: RunDir) -> Path:
    """Refine a clip of a test scene; returns the path of the side-by-side picture."""
    clip = next(frame.clip for frame in dataset.frames if frame.scene == scene)
    picture = study.path / "refined" / f"{clip}.png"
    places = clip_folders(dataset, clip, study.path / "refined" / "links")
    command(
        "infer",
        shown(best.bundle),
        *(word for option, path in places.items() for word in (option, shown(path))),
        *("--out", shown(study.path / "refined" / clip)),
        *("--picture", shown(picture)),
    )
    return picture


def clip_folders(dataset: "Dataset", clip: str, links: Path) -> dict[str, Path]:
    """The folders for `infer`'s --rgb, --depth and --eval, with the frames of one clip.

    They are the clip's own where these have no other pictures, and its files have one size and are
    paired by their names, as `infer` needs them; else folders of links in `links`.
    """
    from zoerefine.depth.data.networks.pseudo_source import UNKNOWN, source_of, write_source
    from zoerefine.depth.infer.sources import files_below, is_picture

    frames = [frame for frame in dataset.frames if frame.clip == clip]
    files: dict[str, list[Path | None]]
    files = {"--rgb": [frame.rgb for frame in frames], "--depth": [frame.zoe for frame in frames],
             "--eval": [frame.depth for frame in frames]}  # fmt: skip
    known = {option: [*filter(None, paths)] for option, paths in files.items() if any(paths)}
    listed, stems = set(known["--rgb"]), [frame.rgb.stem for frame in frames]
    own = {option: {path.parent for path in paths} for option, paths in known.items()}
    are_apart = (
        len(set().union(*own.values())) == len(own)
        and not any(frame.sizes_may_differ for frame in frames)
        and not any(
            is_picture(path) and path not in listed
            for folder in own["--rgb"]
            for path in files_below(folder)
        )
    )
    if are_apart and all([path.stem for path in paths] == stems for paths in known.values()):
        return {option: paths[0].parent for option, paths in known.items()}

    shutil.rmtree(links, ignore_errors=True)
    for option in known:
        folder = links / option.strip("-")
        folder.mkdir(parents=True)
        for number, path in enumerate(files[option]):
            if path:
                link_on_grid(path, frames[number], folder / f"{number:06d}{path.suffix}")
    if (source := source_of(known["--depth"][0].parent)) != UNKNOWN:
        write_source(links / "depth", source)
    return {option: links / option.strip("-") for option in known}


def link_on_grid(path: Path, frame: "Frame", at: Path) -> None:
    """Link a frame's file. Depth that may have another size is written on the picture's grid."""
    from zoerefine.base.files.images import picture_size, read_rgb, read_values, write_png
    from zoerefine.depth.data.cache.decode import on_grid_of

    if frame.sizes_may_differ and picture_size(path) != picture_size(frame.rgb):
        with suppress(UserError):  # `infer` says what is wrong with this file
            write_png(at, on_grid_of(read_rgb(frame.rgb), read_values(path), path, frame.rgb))
            return
    at.symlink_to(path.resolve())


def summarize(
    study: RunDir, best: RunDir, results: dict[str, Any], picture: Path
) -> dict[str, Any]:
    """The content of `summary.json`: metrics, engine timings, and the paths of all results."""
    from zoerefine.depth.exporting.bundle.bundle import read_manifest

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
        "test_scenes": results["test_scenes"],
        **{which: test[which] for which in (*DEPTHS, "shuffled")},
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
    """Print the metrics and paths of a summary."""
    from rich.console import Console
    from rich.table import Table

    from zoerefine.depth.metrics import arrow

    console = Console(width=120 if not sys.stdout.isatty() else None)
    scenes = ", ".join(summary["test_scenes"])
    table = Table(title=f"{summary['data']}: held-out scenes {scenes}")
    table.add_column("depth")
    for name in SHOWN:
        table.add_column(f"{name} {arrow(name)}", justify="right")
    label = summary["pseudo_label"]
    for which, title in (
        ("pseudo", label),
        ("global_scale", f"{label}, times the best factor for the training scenes"),
        ("points", f"{label}, with metric points (docs/points.md)"),
        ("refined", "refined"),
        ("refined_points", "refined, with metric points"),
        ("shuffled", f"refined from another scene's {label}"),
    ):
        table.add_row(title, *(f"{summary[which][name]:.3f}" for name in SHOWN))
    console.print(table)
    for scene, values in summary["test_scenes"].items():
        before, after = (values[which][SELECTION_METRIC] for which in ("pseudo", "refined"))
        scores = f"{before:.3f} before refinement, {after:.3f} after"
        console.print(f"{scene}: {SELECTION_METRIC} {scores}")
    console.print(
        "These figures are of all clips of these scenes at the size of training. Step 4 evaluates "
        "one clip of them at the size of its files, so its figures differ.",
        soft_wrap=True,
    )
    console.print(f"largest change by an untrained refiner: {summary['untrained_max_change_m']} m")
    engine = summary["engine"]
    console.print(
        f"engine {engine['kind']}: {engine['latency_ms']:.1f} ms per frame, eager PyTorch "
        f"{engine['eager_ms']:.1f} ms ({engine['eager_ms'] / engine['latency_ms']:.2f}x), largest "
        f"difference {engine['max_abs_err_m']:.3f} m"
    )
    for name, path in summary["paths"].items():
        console.print(f"{name:<16} {shown(Path(path))}", soft_wrap=True, highlight=False)
