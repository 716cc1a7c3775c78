"""benchmarks/on_gpu on a machine without a GPU: it says so, and its parts that need none run."""

import importlib.util
import json
import os
import re
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import torch

from tests.processes import run_program
from tests.test_dockerfile import ONLY

# torch, NumPy, PyYAML, and what torch requires.
BARE = (
    "torch", "torchgen", "functorch", "numpy", "numpy.libs", "yaml", "_yaml", "sympy", "mpmath",
    "networkx", "jinja2", "markupsafe", "fsspec", "filelock", "typing_extensions.py", "setuptools",
)  # fmt: skip
ON_GPU = Path(__file__).resolve().parents[3] / "benchmarks" / "on_gpu"


NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def on_gpu(*words, **variables):
    command = [sys.executable, "-W", "ignore", ON_GPU, *words]
    return run_program(command, env=os.environ | variables)


# What a GPU machine with no more than common packages lacks.
ABSENT = {"simplejpeg", "git", "gitdb", "smmap", "optuna", "optuna_dashboard", "av", "cupy",
          "pynvml", "regex", "rich"}  # fmt: skip


@NO_GPU
def test_without_a_gpu_and_many_packages_small_versions_run_to_the_end(tmp_path):
    sections = "whole_run", "step", "loading", "training"  # the next test runs the others
    out = tmp_path / "rows"
    (tmp_path / "sitecustomize.py").write_text(ONLY.format(blocked=ABSENT))
    done = on_gpu(*sections, "--out", out, PYTHONPATH=str(tmp_path))
    assert done.stdout.startswith(f"no GPU: torch {torch.__version__} finds none.")
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    measures = [row["measure"] for row in rows]
    of_gpus = [name for name in measures if name.endswith(": failed")]
    assert of_gpus == [
        "training step by the profiler: failed",
        "augmentation by the profiler: failed",
        "pinned memory to the device: failed",
        "CUDA graph of the whole step, bf16: failed",
    ]
    values = {row["measure"]: row["value"] for row in rows}
    assert values["whole run fp32: the same bits twice"] == 1
    assert values["whole run fp32: the same bits after a kill and a resume"] == 1
    assert {
        "validation with losses: a frame",
        "tier device: against tier mmap",
        "training step, default settings: against plain eager fp32",
    } <= set(values)
    assert "tier device: share hidden" not in done.stdout
    order = [done.stdout.index(f"== {name}") for name in sections]
    assert order == sorted(order)
    # Each row is printed when it is measured, and in the table at the end.
    assert done.stdout.count("training step, fp16: p50") == 2
    [written] = out.glob("gpu-no-gpu-*.json")
    assert json.loads(written.read_text())["rows"] == rows


@NO_GPU
def test_with_only_torch_numpy_and_yaml_engines_are_measured_and_the_rest_names_what_it_lacks(
    tmp_path,
):
    venv.create(tmp_path / "bare", with_pip=False)
    found = sysconfig.get_path("purelib")
    [bare] = (tmp_path / "bare").glob("lib/python*/site-packages")
    for name in BARE:
        if (Path(found) / name).exists():
            (bare / name).symlink_to(Path(found) / name)
    command = [tmp_path / "bare" / "bin" / "python", "-W", "ignore", ON_GPU, "--out", tmp_path]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = run_program(command, env=alone)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert re.findall("^== (.+)$", done.stdout, re.MULTILINE) == [
        "whole_run", "calls", "engines", "step", "embedded", "loading", "training", "gpu_tests"
    ]  # fmt: skip
    missing = "not measured: pip install "
    named = [row["measure"] for row in rows if row.get("note", "").startswith(missing)]
    assert named == ["whole_run", "step", "loading", "training", "gpu_tests"]
    assert "TensorRT: not measured: " in done.stdout
    assert {
        "48x64 Refiner, tensors, uint16: p50",
        "60x80 Refiner, tensors, float32: time to queue a call",
        "48x64 batch 1 torchscript fp32: p50",
        "48x64 batch 1 torchscript bf16: p50",
        "aoti fp32",
        "TensorRT",
    } <= {row["measure"] for row in rows}
    failed = [row["measure"] for row in rows if row["measure"].endswith(": failed")]
    assert failed == [
        "48x64 Refiner, CuPy, float32: failed",
        "60x80 Refiner, CuPy, float32: failed",
        "calls as CUDA graphs: failed",
        "48x64 batch 1 CUDA graph of eager fp32: failed",
        "48x64 batch 1 CUDA graph of eager fp16: failed",
    ]


@pytest.fixture
def program(monkeypatch):
    """The program as a module."""
    monkeypatch.syspath_prepend(ON_GPU)  # it adds folders of its own, which are removed after
    spec = importlib.util.spec_from_file_location("on_gpu_main", ON_GPU / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    spec.loader.exec_module(module)
    return module


def test_sections_that_all_take_their_time_end_within_eight_minutes(program, monkeypatch, capsys):
    now, limits = [0.0], []

    def take_all(section, out, limit):
        limits.append(limit)
        now[0] += limit if limit >= program.LEAST_S else 0
        return [program.failed(section, "too long")]

    monkeypatch.setattr(program, "run_section", take_all)
    monkeypatch.setattr(program, "write_results", lambda *_: None)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    program.run_all(list(program.SECTIONS), None, small=False)
    assert now[0] <= 8 * 60 - 10  # the rest is for imports and the driver's version
    assert limits[:4] == list(program.SECTIONS.values())[:4]
    assert len(limits) == len(program.SECTIONS)


def test_a_section_without_time_says_so(program):
    [row] = program.run_section("engines", None, 4.0)
    assert row["note"].startswith("not measured: the program's 470 s are over")


# A section that starts another process and never ends.
ENDLESS = """
import subprocess, sys
from pathlib import Path
with Path(__file__).with_name("pipe").open("w") as pipe:
    subprocess.run(["sh", "-c", "echo begun; sleep 30; echo survived"], stdout=pipe)
"""


def test_what_a_section_started_ends_with_it(program, tmp_path, monkeypatch):
    (tmp_path / "__main__.py").write_text(ENDLESS)
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(program, "HERE", tmp_path)
    [row] = program.run_section("engines", None, program.LEAST_S)
    assert row["note"].startswith("took longer than its 5 s")
    os.set_blocking(reading, True)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "begun\n"


def test_packages_on_the_callers_pythonpath_reach_the_sections(tmp_path):
    """On a lent machine, a folder there may hold all that is installed."""
    (tmp_path / "carried.py").write_text("")
    program = (
        "import runpy, subprocess, sys\n"
        f"runpy.run_path({str(ON_GPU / '__main__.py')!r}, run_name='imported')\n"
        "subprocess.run([sys.executable, '-c', 'import carried, common'])\n"
    )
    variables = os.environ | {"PYTHONPATH": str(tmp_path)}
    assert run_program([sys.executable, "-c", program], env=variables).stderr == ""
