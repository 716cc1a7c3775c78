"""Everything that needs a GPU, in one program of under eight minutes: `python benchmarks/on_gpu`.

Runs the tests that use a GPU, and times engines, TensorRT, loading and training. Each section
runs in its own process: if it fails or takes too long, a row says so and the next section starts.
Rows are printed as they are measured. A table at the end repeats them, and
benchmarks/results/gpu-<name>-<date>.json holds them. Without a GPU, small versions of all sections
run on the CPU, to try the program; no results are written.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
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

# Time limit of each section in seconds on a GPU; the whole program has one, too.
SECTIONS = {"engines": 170, "embedded": 120, "training": 90, "loading": 50, "gpu_tests": 100}
WHOLE_LIMIT_S = 470
CPU_LIMIT_S = 600  # of each section's small version
# What a section needs besides torch and NumPy, with the names that pip knows.
CONFIG = {"yacs": "yacs", "yaml": "pyyaml", "cv2": "opencv-python-headless", "tqdm": "tqdm"}
TESTING = {"pytest": "pytest", "hypothesis": "hypothesis", "rich": "rich"}
NEEDS = {"training": CONFIG, "loading": CONFIG, "gpu_tests": CONFIG | TESTING}
PACKAGES = ("torch", "torch-tensorrt", "tensorrt", "tensorrt-cu13", "triton", "zoerefine")


def main() -> int:
    """Run all sections; as a child process, run one and write its rows."""
    parser = argparse.ArgumentParser(prog="on_gpu", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="default: all")
    parser.add_argument("--child", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    import torch

    small = not torch.cuda.is_available()
    if args.child:
        measure(args.sections[0], args.child, small)
        return 0
    if small:
        print(f"no GPU: torch {torch.__version__} finds none. Small versions run on the CPU, to "
              "try the program; their figures mean nothing and are not kept.")  # fmt: skip
    return run_all(args.sections or list(SECTIONS), small)


def measure(section: str, path: Path, small: bool) -> None:
    """Print a section's rows and write them, each at once: the process may be stopped."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="on-gpu-") as folder:
        for row in import_module(section).measure(Path(folder), small):
            rows.append(row)
            path.write_text(json.dumps(rows))
            print(f"{row['measure']}  {row['value']:.3f} {row['unit']}".rstrip(), flush=True)


def run_all(sections: list[str], small: bool) -> int:
    """Run every section as a process, print the table and write the results."""
    from common.report import report

    end = time.monotonic() + WHOLE_LIMIT_S
    rows: list[dict[str, Any]] = []
    for section in sections:
        print(f"== {section}", flush=True)
        limit = min(SECTIONS[section], max(5, end - time.monotonic()))
        rows += run_section(section, CPU_LIMIT_S if small else limit)
    machine = describe()
    print(f"\n{machine['gpu']}, driver {machine['driver']}, torch {machine['torch']}, "
          f"Torch-TensorRT {machine['torch-tensorrt']}\n")  # fmt: skip
    report(rows, None)
    for row in rows:
        if row.get("note"):
            print(f"  {row['measure']}: {row['note']}")
    if not small:
        name = re.sub(r"[^A-Za-z0-9]+", "-", machine["gpu"]).strip("-").lower()
        path = HERE.parent / "results" / f"gpu-{name}-{datetime.date.today()}.json"
        path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
        print(path)
    return 0


def run_section(section: str, limit: float) -> list[dict[str, Any]]:
    """The rows of a section, with one more that says why if it ended early."""
    if missing := [
        name for module, name in NEEDS.get(section, {}).items() if not find_spec(module)
    ]:
        note = f"not measured: pip install {' '.join(missing)}"
        print(note)
        return [{"measure": section, "value": 0.0, "unit": "", "goal": None, "ok": True,
                 "note": note}]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "rows.json"
        words = [sys.executable, "-W", "ignore", str(HERE), section, "--child", str(found)]
        why = ""
        try:
            done = subprocess.run(words, timeout=limit, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
                print("\n".join(lines[-25:]), file=sys.stderr)
                why = lines[-1]
        except subprocess.TimeoutExpired:
            why = f"took longer than its {limit:.0f} s: rows measured until then are kept"
        rows: list[dict[str, Any]] = json.loads(found.read_text()) if found.exists() else []
        return [*rows, failed(section, why)] if why else rows


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
