"""The demo: the commands that a user would type, one after the other, and a table at the end."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.files import write_json
from zoerefine.run_dir import RunDir

CHECKOUT = Path(__file__).resolve().parents[1]
RUNS = Path("runs")
SYNTHETIC = Path("data/synthetic")
SHOWN = ("abs_rel", "rmse", "log10", "silog", "delta1", "delta2")


def run_demo(data: Path | None) -> None:
    """Go the whole way in this checkout; `data` is a folder of real frames, or None.

    Raises:
        UserError: a step failed; its own message stands above.
    """
    os.chdir(CHECKOUT)
    if data is None:
        step("1/6 a small synthetic world in HabitatDyn's layout")
        command("data", "synthesize", SYNTHETIC, "--scenes", 12, "--clips", 2, "--frames", 12)
        data = SYNTHETIC
    else:
        step(f"1/6 real frames in {data}")
        command("data", "inspect", data)
    step("2/6 this repository's HEAD in a workspace of its own: pack, search, train the best")
    study = launch(data)
    best = RunDir(study.path / "best")
    step("3/6 the best refiner becomes an engine bundle")
    command("export", best.path)
    step("4/6 the bundle refines a scene that training never saw")
    refined = infer_test_clip(study, best, data)
    step("5/6 all trials in one graph")
    command("analyze", study.path, "--out", study.report)
    step("6/6 what was measured")
    summary = summarize(study, best, refined)
    write_json(study.path.parent / "summary.json", summary)
    print(table(summary))


def step(title: str) -> None:
    """Print a heading."""
    print(f"\n=== {title}", flush=True)


def command(name: str, *words: object) -> None:
    """Run one of the scripts in platform/, shown as a user would type it."""
    script = f"platform/{name}.py"
    argv = [str(word) for word in words]
    print(f"$ python {script} {shlex.join(argv)}", flush=True)
    code = subprocess.run([sys.executable, script, *argv], check=False).returncode
    if code:
        raise UserError(f"the demo stopped: {script} ended with exit code {code}, see above")
