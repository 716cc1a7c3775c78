"""Fixtures that many tests use: a tiny synthetic world, a tiny config, scripts as processes."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.cluster import three_nodes
from tests.foreign import ForeignRepository
from tests.machine_faults import OtherUser, SmallDisk
from tests.processes import platform_command, run_script
from tests.slurm import slurm_on_this_machine
from zoerefine.base.config import load_config
from zoerefine.base.files.atomic import digest_file, digest_json
from zoerefine.base.files.locks import lock
from zoerefine.base.progress import be_quiet
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.exporting.bundle.bundle import read_manifest
from zoerefine.depth.exporting.bundle.trust import trust
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.export import export
from zoerefine.depth.training.checkpoint import load_refiner, save_best
from zoerefine.depth.training.job import run_training

CHECKOUT = Path(__file__).resolve().parents[1]
pytest_plugins = ("tests.durations", "tests.tiers")

settings.register_profile("machines differ", deadline=None)  # no test measures time
settings.load_profile("machines differ")

# A shell starts background processes with SIGINT ignored, and nohup does so with SIGHUP. Child
# processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

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
AOTI_SCRIPT = CHECKOUT / "tests" / "depth" / "exporting" / "aoti_without_torchscript.py"
AOTI_CODE = "exporting", "model", "data"

CHROMIUM = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(autouse=True)
def messages_are_shown():
    """A command that an earlier test of this process ran with --quiet has hidden them."""
    be_quiet(False)


@pytest.fixture(scope="session", autouse=True)
def trusted_bundles(tmp_path_factory):
    """The list of trusted bundles of this test process and of the commands that it starts."""
    path = tmp_path_factory.mktemp("state") / "trusted.txt"
    os.environ["ZOEREFINE_TRUSTED"] = str(path)
    return path


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A synthetic world of 4 scenes, a clip of 4 frames each. Tests must not change it."""
    root = tmp_path_factory.mktemp("world") / "world"
    synthesize(root, scenes=4, clips=1, frames=4, seed=0, height=48, width=64)
    return root


@pytest.fixture
def tiny(tmp_path, world, monkeypatch):
    """A config file for that world. The current folder is the test's own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.replace("DATA: {", f"DATA: {{ROOT: {world}, "))
    return path


@pytest.fixture(scope="session")
def exported_run(world, tmp_path_factory):
    """A trained run with a torchscript fp32 bundle. Tests must not change it.

    It is not calibrated, and its refiner's heads are random, so that refined depth differs clearly
    from pseudo depth, and its spread differs from pixel to pixel.
    """
    folder = tmp_path_factory.mktemp("exported")
    (folder / "tiny.yaml").write_text(TINY.replace("DATA: {", f"DATA: {{ROOT: {world}, "))
    folders = ("RUN.ROOT", str(folder / "runs"), "CACHE.ROOT", str(folder / "caches"))
    options = (*folders, "TRAIN.EPOCHS", "1", "TRAIN.CALIBRATE", "False")
    run = run_training(load_config(folder / "tiny.yaml", list(options)))
    torch.use_deterministic_algorithms(False)
    refiner = load_refiner(run)
    torch.manual_seed(0)
    torch.nn.init.normal_(refiner.get_parameter("backbone.head.weight"), std=0.3)
    torch.nn.init.normal_(refiner.get_parameter("backbone.scale_head.weight"), std=10.0)
    save_best(run, refiner.state_dict())
    export(run, "torchscript", "fp32")
    return run


@pytest.fixture(scope="session")
def study(world, tmp_path_factory):
    """A finished study with its best run trained and exported. Tests must not change it."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.yaml").write_text(
        TINY.replace("DATA: {", f"DATA: {{ROOT: {world}, ")
        + "STUDY: {TRIALS: 3, EPOCHS: 1, THEN: train}\n"
        + "SEARCH:\n  TRAIN: {LR: {low: 1.0e-4, high: 1.0e-2, log: true}}\n"
        + "  MODEL: {MAX_LOG: [0.5, 1]}\n"
    )
    found = run_script(folder, "search", "--config", "study.yaml")
    assert found.returncode == 0, found.stderr
    run = RunDir(Path(found.stdout.splitlines()[-1]))
    export(RunDir(run.path / "best"), "torchscript", "fp32")
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
    digest = digest_json([torch.__version__, *sorted(map(digest_file, [*code, AOTI_SCRIPT]))])[:16]
    folder = Path(request.config.cache.mkdir("aoti"))
    path = folder / f"{digest}.pt2"
    with lock(folder / ".lock"):  # another worker may build it
        if not path.exists():
            module = "tests.depth.exporting.aoti_without_torchscript"
            command = [sys.executable, "-W", "ignore", "-m", module, path]
            done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
    trust(read_manifest(path)["digest"], path)  # it may have been built by other tests
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Ray cluster of three nodes: its address, the nodes by name, the folder of their homes."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'zoerefine[cluster]'")
    with three_nodes(tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory):
    """A real Slurm with two nodes. Tests that kill a node start it again."""
    with slurm_on_this_machine(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def slurm(slurm_cluster, monkeypatch):
    """That Slurm, for this process and the commands that it starts."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm_cluster.environment[name])
    return slurm_cluster


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


@pytest.fixture
def foreign_repository(tmp_path):
    """A repository of another project: foreign_repository(kind) with one of `KINDS`."""
    return lambda kind: ForeignRepository(tmp_path / "foreign" / kind, kind)


@pytest.fixture
def other_user():
    """Another user than root, with a folder that belongs to this user."""
    with tempfile.TemporaryDirectory(prefix="zoerefine-user-") as folder:
        os.chmod(folder, 0o755)  # pytest's own folders are closed to others
        yield OtherUser(Path(folder) / "user")


@pytest.fixture
def small_disk(other_user):
    """A disk of 24 MB that belongs to this user: it can be filled, and made read-only."""
    disk = SmallDisk(other_user.folder, other_user)
    yield disk
    disk.close()


@pytest.fixture
def script(tmp_path):
    """Run a script of platform/ in the test's folder: script("train", ...) -> finished process.

    It is a fork of a loaded process; `start_script` starts a process of its own.
    """
    return lambda name, *words: run_script(tmp_path, name, *words)


@pytest.fixture
def start_script(tmp_path):
    """Start a script of platform/: start_script("train", ...) -> process, killed at the end."""
    started = []

    def start(name, *words):
        process = subprocess.Popen(
            platform_command(name, *words),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def script_of(tmp_path):
    """Run a verb of the console script: script_of("doctor", ...) -> finished process."""

    def run(verb, *words):
        return subprocess.run(
            [sys.executable, "-m", "zoerefine", verb, *map(str, words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=900,
        )

    return run


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium, controlled by selenium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    driver = shutil.which("chromedriver")
    if driver is None:
        pytest.skip("Chromium is not installed: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    for option in CHROMIUM:
        options.add_argument(option)
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium):
    """Chromium with an empty page, so that another test's page sends no more requests."""
    yield chromium
    chromium.get("about:blank")
    chromium.get_log("browser")


@pytest.fixture
def wait_until():
    """Wait for a condition, while a process lives if one is given: wait_until(condition, process).

    The time limit only ends a test that would wait forever. A condition that lists a folder fails
    where the process removes a folder meanwhile; then it does not hold yet.
    """

    def holds(condition):
        try:
            return condition()
        except FileNotFoundError:
            return False

    def wait(condition, process=None, seconds=120):
        end = time.monotonic() + seconds
        while not holds(condition):
            ended = process is not None and process.poll() is not None
            assert not ended, f"it ended with {process.returncode} too early"
            assert time.monotonic() < end, "it took too long"
            time.sleep(0.01)

    return wait
