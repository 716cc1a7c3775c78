"""Fixtures that many tests use: scripts as processes, a Slurm, a browser, another user."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cluster import ray_nodes
from tests.finished import run_here
from tests.foreign import ForeignRepository
from tests.machine_faults import OtherUser, SmallDisk
from tests.processes import killed_at_end, platform_command, run_script
from tests.slurm import slurm_on_this_machine
from zoerefine.base.files.file_lock import lock
from zoerefine.base.machine.memory import free_memory
from zoerefine.base.messages import be_quiet

CHECKOUT = Path(__file__).resolve().parents[1]
MEMORY, MUCH_MEMORY = "/dev/shm", 8 * 2**30
# Bytecode of the tests and of zoerefine is kept, also where PYTHONDONTWRITEBYTECODE is set.
sys.dont_write_bytecode = False
pytest_plugins = ["tests.tiers", "tests.durations", "tests.without_torch"]
if find_spec("torch"):
    pytest_plugins += ["tests.depth_fixtures"]

settings.register_profile("machines differ", deadline=None, max_examples=50)  # no test is timed
settings.load_profile("machines differ")

# A shell starts background processes with SIGINT ignored, and nohup does so with SIGHUP. Child
# processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def is_memory_for_tests(folder):
    """Whether it has room for the tests' folders, and programs may be started there."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    room = min(disk.f_bavail * disk.f_frsize, free_memory())
    return room >= MUCH_MEMORY and not disk.f_flag & os.ST_NOEXEC


# Databases and runs are written to the disk thousands of times, and each time waits for it.
if is_memory_for_tests(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)

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
def shared(tmp_path_factory):
    """A folder that one test process builds for all: shared(name, build) -> its path."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def get(name, build):
        folder, is_built = root / name, root / f"{name}.is_built"
        with lock(root / f"{name}.lock"):
            if not is_built.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                build(folder)
                is_built.touch()
        return folder

    return get


BUILT_FROM = "zoerefine", "configs", "pyproject.toml", "setup.py", "README.md", "LICENSE"


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The programs of an environment with the wheel, and with what this environment has."""
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "installed"))
    for name in BUILT_FROM:
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copyfile
        copy(CHECKOUT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    local = ("--no-deps", "--no-index")
    build = [*pip, "wheel", *local, "--no-build-isolation", "--wheel-dir", folder, source]
    subprocess.run(build, check=True)
    venv.create(folder / "venv")
    programs = folder / "venv" / "bin"
    (wheel,) = folder.glob("*.whl")
    install = [*pip, "--python", programs / "python", "install", "--ignore-installed"]
    subprocess.run([*install, *local, wheel], check=True)
    (packages,) = folder.glob("venv/lib/*/site-packages")
    (packages / "outside.pth").write_text(sysconfig.get_path("purelib"))
    return programs


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Ray cluster of three nodes: its address, the nodes by name, the folder of their homes."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'zoerefine[cluster]'")
    with ray_nodes(tmp_path_factory.mktemp("nodes"), "second", "third") as nodes:
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

    It is a fork of a loaded process; `start_script` starts a process of its own. It must end with
    the exit code 0, or with `code`.
    """
    return lambda name, *words, code=0: run_script(tmp_path, name, *words, code=code)


@pytest.fixture
def here(capsys):
    """Run a command in this process: here("show", folder, code=0) -> its code, out and err."""
    return partial(run_here, capsys)


@pytest.fixture
def start_script(tmp_path):
    """Start a script of platform/: start_script("train", ...) -> process, killed at the end."""
    with killed_at_end() as start:
        yield lambda name, *words: start(platform_command(name, *words), cwd=tmp_path)


@pytest.fixture
def no_pictures(monkeypatch):
    """`analyze` in this process writes its tables and its page, and draws nothing.

    Pictures take most of its time; the tests of pictures draw them.
    """
    from zoerefine.lab.analysis import analyze
    from zoerefine.lab.analysis.report import page_pictures

    monkeypatch.setattr(analyze, "draw_overview", lambda *_: [])
    monkeypatch.setattr(analyze, "draw_settings", lambda *_: False)
    monkeypatch.setattr(page_pictures, "draw_graph", lambda *_: {"wide": "", "narrow": ""})


WRITE = """
import sys
from pathlib import Path
from zoerefine.base.run_dir import RunDir
with RunDir(Path(sys.argv[1])).writing():
    print("writing", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def writer():
    """Starts processes that write a run and hold its lock until they are ended: writer(folder)."""
    with killed_at_end() as start:

        def started(folder):
            process = start([sys.executable, "-c", WRITE, folder], stdin=subprocess.PIPE)
            assert process.stdout.readline() == "writing\n"
            return process

        yield started


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
