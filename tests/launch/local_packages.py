"""Packages in a folder, for lock files that need no network."""

import tarfile
import zipfile

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
    with open(GATE + ".builds", "a") as builds:
        builds.write("built\\n")
    while not os.path.exists(GATE):
        time.sleep(0.02)
    name = "tinything-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        wheel.writestr("tinything.py", "VERSION = '1.0'\\n")
        wheel.writestr("tinything-1.0.dist-info/METADATA", ABOUT)
        wheel.writestr("tinything-1.0.dist-info/WHEEL", TAG)
        wheel.writestr("tinything-1.0.dist-info/RECORD", "")
    return name
"""


def make_wheel(folder, version):
    """A package of one module; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"tinything-{version}"
    file = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("tinything.py", f"VERSION = '{version}'\n")
        about = f"Metadata-Version: 2.1\nName: tinything\nVersion: {version}\n"
        wheel.writestr(f"{name}.dist-info/METADATA", about)
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{name}.dist-info/WHEEL", tag)
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    return file


def make_gated_source(folder, gate):
    """The same package as a source archive: its build waits for the file `gate`."""
    source = folder / "source" / "tinything-1.0"
    source.mkdir(parents=True)
    build = 'requires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (source / "pyproject.toml").write_text(f"[build-system]\n{build}")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n")
    (source / "backend.py").write_text(f"GATE = {str(gate)!r}\n{BACKEND}")
    with tarfile.open(folder / "tinything-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, arcname=source.name)
