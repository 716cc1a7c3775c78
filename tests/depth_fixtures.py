"""Fixtures of depth: a tiny synthetic world, a tiny config, trained and exported runs.

Where torch is not installed, tests that use one of them are left out (without_torch.py).
"""

import shutil
import sys
from pathlib import Path

import pytest
import torch

from tests.depth.exporting.substitute_engine import compiled_substitute
from tests.processes import CHECKOUT, run_program, run_script
from zoerefine.base.config import load_config
from zoerefine.base.files.atomic import digest_file, digest_json
from zoerefine.base.files.file_lock import lock
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.cache.cache import open_cache
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.exporting.bundle.bundle import read_manifest
from zoerefine.depth.exporting.bundle.trust import trust
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.export import export
from zoerefine.depth.training.checkpoint import load_refiner, save_best
from zoerefine.depth.training.job import run_training

# Frames of 64x48 pixels packed at 32x24: a whole training takes about a second.
TINY = """
RUN: {NAME: tiny}
DATA: {VAL_FRACTION: 0.25, TEST_FRACTION: 0.25}
CACHE: {HEIGHT: 24, WIDTH: 32}
LOADER: {BATCH: 4}
MODEL: {BASE: 4}
TRAIN: {EPOCHS: 2, LOG_EVERY: 1}
"""

# What decides the content of an aoti bundle.
AOTI_SCRIPTS = [
    CHECKOUT / "tests/depth/exporting" / name for name in ("sources.py", "without_torchscript.py")
]
AOTI_CODE = "exporting", "model", "data"


@pytest.fixture(scope="session")
def world(shared):
    """A synthetic world of 4 scenes, a clip of 4 frames each. Tests must not change it."""

    def make(folder):
        synthesize(folder / "world", scenes=4, clips=1, frames=4, seed=0, height=48, width=64)

    return shared("world", make) / "world"


@pytest.fixture(scope="session")
def packed(world, shared):
    """The world's packed cache of 24x32 pixels. Tests must not change it."""
    folder = shared("packed", lambda folder: build_cache(open_dataset(world), 24, 32, folder, 2))
    return open_cache(next(folder.glob("*/cache.json")).parent)


@pytest.fixture
def tiny(tmp_path, world, monkeypatch):
    """A config file for that world. The current folder is the test's own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.replace("DATA: {", f"DATA: {{ROOT: {world}, "))
    return path


def train_tiny(folder, world, *options):
    """Train the tiny configuration with its runs and caches in a folder; returns the run."""
    (folder / "tiny.yaml").write_text(TINY.replace("DATA: {", f"DATA: {{ROOT: {world}, "))
    folders = ("RUN.ROOT", str(folder / "runs"), "CACHE.ROOT", str(folder / "caches"))
    run = run_training(load_config(folder / "tiny.yaml", [*folders, *options]))
    torch.use_deterministic_algorithms(False)
    return run


@pytest.fixture(scope="session")
def exported_run(world, shared, trusted_bundles, tmp_path_factory):
    """A trained run with a torchscript fp32 bundle. Tests must not change it.

    It is not calibrated, and its refiner's heads are random, so that refined depth differs clearly
    from pseudo depth, and its spread differs from pixel to pixel.
    """

    def make(folder):
        run = train_tiny(folder, world, "TRAIN.EPOCHS", "1", "TRAIN.CALIBRATE", "False")
        refiner = load_refiner(run)
        torch.manual_seed(0)
        torch.nn.init.normal_(refiner.get_parameter("backbone.head.weight"), std=0.3)
        torch.nn.init.normal_(refiner.get_parameter("backbone.scale_head.weight"), std=10.0)
        save_best(run, refiner.state_dict())
        export(run, "torchscript", "fp32")

    own = tmp_path_factory.mktemp("exported") / "runs"  # engines are added to it
    shutil.copytree(shared("exported", make) / "runs", own, symlinks=True)
    return trusted(RunDir((own / "tiny" / "latest").resolve()))


def trusted(run):
    """A run with a bundle, and the build of it, that another test process may have made."""
    for bundle in (run.bundle, *(run.engine / "builds").glob("*.ts")):
        trust(read_manifest(bundle)["digest"], bundle)
    return run


@pytest.fixture(scope="session")
def study(world, shared, trusted_bundles):
    """A finished study with its best run trained and exported. Tests must not change it.

    Unlike the exported run it is the same for all test processes: its notes name its folder.
    """

    def make(folder):
        (folder / "study.yaml").write_text(
            TINY.replace("DATA: {", f"DATA: {{ROOT: {world}, ")
            + "STUDY: {TRIALS: 3, EPOCHS: 1, THEN: train}\n"
            + "SEARCH:\n  TRAIN: {LR: {low: 1.0e-4, high: 1.0e-2, log: true}}\n"
            + "  MODEL: {MAX_LOG: [0.5, 1]}\n"
        )
        run_script(folder, "search", "--config", "study.yaml")
        export(RunDir(folder / "runs" / "tiny" / "study" / "best"), "torchscript", "fp32")

    run = RunDir(shared("study", make) / "runs" / "tiny" / "study")
    trusted(RunDir(run.path / "best"))
    return run


@pytest.fixture(scope="session")
def aoti_bundle(request, trusted_bundles):
    """An aoti fp32 bundle of a random refiner, built where TorchScript raises. Not to be changed.

    It is kept in pytest's cache, since a build takes most of a minute.
    """
    missing = engine_kind("aoti").missing_requirement()
    if missing:
        pytest.skip(missing)
    package = CHECKOUT / "zoerefine" / "depth"
    code = [path for part in AOTI_CODE for path in (package / part).rglob("*.py")]
    digest = digest_json([torch.__version__, *sorted(map(digest_file, [*code, *AOTI_SCRIPTS]))])[
        :16
    ]
    folder = Path(request.config.cache.mkdir("aoti"))
    path = folder / f"{digest}.pt2"
    with lock(folder / ".lock"):  # another worker may build it
        if not path.exists():
            module = "tests.depth.exporting.without_torchscript"
            command = [sys.executable, "-W", "ignore", "-m", module, folder, "aoti"]
            assert run_program(command, cwd=CHECKOUT).stderr == ""
            (folder / "aoti").replace(path)
    trust(read_manifest(path)["digest"], path)  # it may have been built by other tests
    return path


@pytest.fixture(scope="session")
def tensorrt_pt2_bundles(request, shared, trusted_bundles):
    """A folder with `tensorrt-pt2` bundles of 1 and 2 outputs, 1.pt2 and 2.pt2. Not to be changed.

    Torch-TensorRT's Python code has made them. Their engine is of the substitute class.
    """
    package = Path(sys.prefix) / "torch-tensorrt"  # `make test` puts it there
    missing = engine_kind("tensorrt-rtx").missing_requirement()
    if missing or not (package / "torch_tensorrt").is_dir():
        pytest.skip(missing or f"Torch-TensorRT is not in {package}: `make test` installs it")
    library = compiled_substitute(request.config.cache)

    def make(folder):
        binaries = shutil.ignore_patterns("lib", "bin", "include", "_C.*", "__pycache__")
        for name in ("torch_tensorrt", "dllist"):
            shutil.copytree(package / name, folder / "packages" / name, ignore=binaries)
        (folder / "packages" / "torch_tensorrt" / "lib").mkdir()
        runtime = folder / "packages" / "torch_tensorrt" / "lib" / "libtorchtrt_runtime.so"
        shutil.copyfile(library, runtime)
        program = CHECKOUT / "tests" / "depth" / "exporting" / "pack_pt2.py"
        command = [sys.executable, "-W", "ignore", program, folder / "packages", folder]
        run_program(command)

    folder = shared("tensorrt-pt2", make)
    for path in folder.glob("*.pt2"):
        trust(read_manifest(path)["digest"], path)
    return folder


@pytest.fixture(scope="session")
def small_zoedepth(tmp_path_factory):
    """A folder with a ZoeDepth of a few thousand weights, untrained. Tests must not change it."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed here")
    backbone = transformers.BeitConfig(
        image_size=384, num_hidden_layers=4, hidden_size=16, num_attention_heads=2,
        intermediate_size=32, use_relative_position_bias=True, reshape_hidden_states=False,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.ZoeDepthConfig(
        backbone_config=backbone, backbone_hidden_size=16, neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8, bottleneck_features=8, num_relative_features=4,
        bin_embedding_dim=8, num_attractors=[2, 2, 2, 1],
    )  # fmt: skip
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("zoedepth")
    transformers.ZoeDepthForDepthEstimation(config).save_pretrained(folder)
    return folder
