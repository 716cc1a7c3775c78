"""Packages in a folder and lock files of them, which need no network."""

import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec

import pytest

from zoerefine.base.registries import ENVIRONMENTS
from zoerefine.lab.launch.environment import uv_program

needs_uv = pytest.mark.skipif(
    find_spec("uv") is None, reason="uv is not installed: pip install 'zoerefine[uv]'"
)
KINDS = [pytest.param(kind, marks=needs_uv if kind == "uv" else ()) for kind in ENVIRONMENTS]
kinds = pytest.mark.parametrize("kind", KINDS)

BACKEND = """
import os, time, zipfile
from pathlib import Path
ABOUT = "Metadata-Version: 2.1\\nName: tinything\\nVersion: 1.0\\n"
TAG = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    place = Path(folder) / "tinything-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(ABOUT)
    (place / "WHEEL").write_text(TAG)
    return place.name

def build_wheel(folder, config_settings=None, metadata_directory=None):
    if GATE:
        with open(GATE + ".builds", "a") as builds:
            builds.write("built\\n")
    while GATE and not os.path.exists(GATE):
        time.sleep(0.02)
    name = "tinything-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        wheel.write("tinything.py")
        wheel.writestr("tinything-1.0.dist-info/METADATA", ABOUT)
        wheel.writestr("tinything-1.0.dist-info/WHEEL", TAG)
        wheel.writestr("tinything-1.0.dist-info/RECORD", "")
    return name
"""


def make_wheel(folder, version, value=None):
    """A package of one module, whose VERSION is `value`; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"tinything-{version}"
    file = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("tinything.py", f"VERSION = {value or version!r}\n")
        about = f"Metadata-Version: 2.1\nName: tinything\nVersion: {version}\n"
        wheel.writestr(f"{name}.dist-info/METADATA", about)
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{name}.dist-info/WHEEL", tag)
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    return file


def make_source(folder, value, gate=""):
    """The same package as a folder: its build waits for the file `gate`, if one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    build = 'requires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (folder / "pyproject.toml").write_text(f"[build-system]\n{build}")
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n")
    (folder / "backend.py").write_text(f"GATE = {str(gate)!r}\n{BACKEND}")
    (folder / "tinything.py").write_text(f"VERSION = {value!r}\n")


def make_gated_source(folder, gate):
    """The same package as a source archive."""
    source = folder / "source" / "tinything-1.0"
    make_source(source, "1.0", gate)
    with tarfile.open(folder / "tinything-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, arcname=source.name)


def requirements(wheels, line="tinything==1.0"):
    return f"--no-index\n--find-links {wheels}\n{line}\n"


def project(more):
    """A pyproject.toml without dependencies; `more` follows its table [project]."""
    about = "name = 'job'\nversion = '0'\nrequires-python = '>=3.11'\n"
    return f"[project]\n{about}{more}"


def index_of(wheels):
    """Settings of uv: packages come from a folder."""
    return f"[tool.uv]\nno-index = true\nfind-links = ['{wheels}']\n"


def lock_project(folder, text):
    """Write pyproject.toml, and let uv write uv.lock; returns the latter's text."""
    (folder / "pyproject.toml").write_text(text)
    lock = [uv_program(), "lock", "--quiet", "--offline", "--python", sys.executable]
    subprocess.run(lock, cwd=folder, check=True)
    return (folder / "uv.lock").read_text()


def pylock(wheel, digest):
    facts = f"url = '{wheel.as_uri()}', hashes = {{ sha256 = '{digest}' }}"
    about = "name = 'tinything'\nversion = '1.0'\n"
    return (
        f"lock-version = '1.0'\ncreated-by = 't'\n[[packages]]\n{about}wheels = [{{ {facts} }}]\n"
    )


def environments(home):
    return [path for path in (home / "environments").iterdir() if path.is_dir()]
