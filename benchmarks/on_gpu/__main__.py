"""Everything that needs a GPU, in one program of under eight minutes: `python benchmarks/on_gpu`.

Asks first whether whole trainings end, with the same bits twice and after a kill; then times calls,
engines, a step, TensorRT, loading and training, and runs the tests that use a GPU. Each section
runs in its own process: if it fails or takes too long, a row says so and the next section starts.
Rows are printed as they are measured, and appended to DIR/rows.jsonl with --out DIR. A table at
the end repeats them. benchmarks/results/gpu-<name>-<date>.json holds them, and DIR a copy; both are
rewritten after each section. Without a GPU, small versions of all sections run on the CPU, to try
the program; benchmarks/results gets nothing.
"""

import argparse
import datetime
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]  # common/, and this tree's zoerefine
# For the processes that are started. What the caller put there stays: it may be all that is
# installed on a lent machine.
inherited = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], *([inherited] if inherited else [])])

# Time limit of each section in seconds on a GPU. The whole program has one, too: a section may take
# what the ones before it have left, and is left out if that is next to nothing.
SECTIONS = {"whole_run": 120, "calls": 50, "engines": 150, "step": 40, "embedded": 120,
            "loading": 50, "training": 130, "gpu_tests": 100}  # fmt: skip
WHOLE_LIMIT_S, LEAST_S = 470, 5
CPU_LIMIT_S = 600  # of each section's small version
# What a section needs besides torch, NumPy and PyYAML, with the names that pip knows.
CONFIG = {"cv2": "opencv-python-headless", "PIL": "pillow", "yacs": "yacs", "tqdm": "tqdm",
          "safetensors": "safetensors"}  # fmt: skip
DRAWING = {"tensorboard": "tensorboard", "matplotlib": "matplotlib"}
TESTING = {"pytest": "pytest", "hypothesis": "hypothesis", "rich": "rich",
           "simplejpeg": "simplejpeg", "optuna": "optuna", "git": "gitpython",
           "optuna_dashboard": "optuna-dashboard", "regex": "regex",
           "filelock": "filelock"}  # fmt: skip
NEEDS = {
    "whole_run": CONFIG | DRAWING, "calls": {}, "engines": {}, "step": CONFIG, "embedded": {},
    "loading": CONFIG, "training": CONFIG, "gpu_tests": CONFIG | TESTING,
}  # fmt: skip
NO_TIME = f"the program's {WHOLE_LIMIT_S} s are over; it alone: python benchmarks/on_gpu SECTION"
PACKAGES = ("torch", "torch-tensorrt", "tensorrt", "tensorrt-cu13", "triton", "zoerefine")


def main() -> int:
    """Run all sections; as a child process, run one and write its rows."""
    parser = argparse.ArgumentParser(prog="on_gpu", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="default: all")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where rows go, too")
    parser.add_argument("--child", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    import torch

    small = not torch.cuda.is_available()
    if args.child:
        measure(args.sections[0], args.child, args.out, small)
        return 0
    if small:
        print(f"no GPU: torch {torch.__version__} finds none. Small versions run on the CPU, to "
              "try the program; their figures mean nothing and are not kept.")  # fmt: skip
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    return run_all(args.sections or list(SECTIONS), args.out, small)


def measure(section: str, path: Path, out: Path | None, small: bool) -> None:
    """Print a section's rows and write them, each at once: the process may be stopped."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="on-gpu-") as folder:
        for row in import_module(section).measure(Path(folder), small):
            rows.append(row)
            path.write_text(json.dumps(rows))
            append(out, row)
            print(f"{row['measure']}  {row['value']:.3f} {row['unit']}".rstrip(), flush=True)


def append(out: Path | None, row: dict[str, Any]) -> None:
    """Add a row to the rows of --out."""
    if out:
        with (out / "rows.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


def run_all(sections: list[str], out: Path | None, small: bool) -> int:
    """Run every section as a process, write the results after each, and print the table."""
    from common.report import print_table

    machine = describe()
    folders = [folder for folder in (out, None if small else HERE.parent / "results") if folder]
    end = time.monotonic() + WHOLE_LIMIT_S
    rows: list[dict[str, Any]] = []
    for section in sections:
        print(f"== {section}", flush=True)
        limit = CPU_LIMIT_S if small else min(SECTIONS[section], end - time.monotonic())
        rows += run_section(section, out, limit)
        for folder in folders:
            write_results(folder, machine, rows)
    print(f"\n{machine['gpu']}, driver {machine['driver']}, torch {machine['torch']}, "
          f"Torch-TensorRT {machine['torch-tensorrt']}\n")  # fmt: skip
    print_table(rows)
    for row in rows:
        if row.get("note"):
            print(f"  {row['measure']}: {row['note']}")
    return 0


def write_results(folder: Path, machine: dict[str, str], rows: list[dict[str, Any]]) -> None:
    """All rows until now, with the machine they were measured on."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", machine["gpu"]).strip("-").lower()
    path = folder / f"gpu-{name}-{datetime.date.today()}.json"
    path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


def run_section(section: str, out: Path | None, limit: float) -> list[dict[str, Any]]:
    """The rows of a section, with one more that says why if it ended early."""
    missing = [name for module, name in NEEDS[section].items() if not find_spec(module)]
    if missing or limit < LEAST_S:
        note = "not measured: " + (f"pip install {' '.join(missing)}" if missing else NO_TIME)
        print(note)
        absent = {"measure": section, "value": 0.0, "unit": "", "goal": None, "ok": True,
                  "note": note}  # fmt: skip
        append(out, absent)
        return [absent]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "rows.json"
        words = [sys.executable, "-W", "ignore", str(HERE), section, "--child", str(found)]
        words += ["--out", str(out)] if out else []
        why = ""
        # A session of its own: what the section has started ends with it.
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as child:  # fmt: skip
            try:
                _, errors = child.communicate(timeout=limit)
                if child.returncode:
                    lines = [line for line in errors.splitlines() if not line.startswith("[W")]
                    lines = lines or [f"exit code {child.returncode}"]
                    print("\n".join(lines[-25:]), file=sys.stderr)
                    why = lines[-1]
            except subprocess.TimeoutExpired:
                why = f"took longer than its {limit:.0f} s: rows measured until then are kept"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        rows: list[dict[str, Any]] = json.loads(found.read_text()) if found.exists() else []
        if why:
            rows.append(failed(section, why))
            append(out, rows[-1])
        return rows


def failed(section: str, why: str) -> dict[str, Any]:
    """The row of a section that ended early."""
    return {"measure": f"{section}: failed", "value": 0.0, "unit": "", "goal": "no failure",
            "ok": False, "note": why}  # fmt: skip


def describe() -> dict[str, str]:
    """The machine and its package versions."""
    import torch

    words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(words, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        driver = ""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    facts = {"gpu": gpu, "driver": driver.strip() or "?", "cuda": str(torch.version.cuda),
             "python": platform.python_version()}  # fmt: skip
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


if __name__ == "__main__":
    sys.exit(main())
