"""Each extra that a message names is one of pyproject.toml, and a failed import is one line."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from zoerefine.base.errors import UserError, install, needed

ROOT = Path(__file__).parents[2]


def test_a_package_that_cannot_be_imported_is_named_with_its_extra():
    with pytest.raises(UserError) as error, needed("bags need no_such_package", "ros"):
        importlib.import_module("no_such_package")
    assert str(error.value) == f"bags need no_such_package: {install('ros')}"


def test_every_extra_that_messages_name_exists():
    call = re.compile(r"""(?:install|needed|missing_package)\((?:f?"[^"]*", )?"([a-z-]+)"\)""")
    constant = re.compile(r'^EXTRA = "([a-z-]+)"', re.M)
    files = [path.read_text() for path in (ROOT / "zoerefine").rglob("*.py")]
    named = {name for text in files for one in (call, constant) for name in one.findall(text)}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"onnx", "video", "trackers", "archive", "uv"} <= named
    assert named <= extras["optional-dependencies"].keys()
