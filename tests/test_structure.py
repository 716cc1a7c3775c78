"""Imports go down the layers that CONTRIBUTING.md lists, and never in a circle."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYER = re.compile(r"^\| (\d) \| (.*) \|$", re.MULTILINE)
# The package's own file offers the API's functions, which import what they need when called.
PACKAGE = "zoerefine"


def module_name(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.fixture(scope="module")
def imports():
    """The modules of the package, with those that each imports anywhere in its file."""
    paths = {module_name(path): path for path in (ROOT / PACKAGE).rglob("*.py")}
    return {name: imported_by(path) & paths.keys() - {name} for name, path in paths.items()}


def imported_by(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found - {PACKAGE}


@pytest.fixture(scope="module")
def layers():
    rows = LAYER.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    return {part.removesuffix(".py").rstrip("/"): int(number)
            for number, parts in rows for part in re.findall(r"`([^`]+)`", parts)}  # fmt: skip


def test_every_part_of_the_package_has_a_layer(imports, layers):
    parts = {name.split(".")[1] for name in imports if name != PACKAGE}
    assert parts == layers.keys()


def test_no_module_imports_from_a_higher_layer(imports, layers):
    layer = {name: layers[name.split(".")[1]] for name in imports if name != PACKAGE}
    upwards = [f"{name} -> {other}" for name in layer for other in imports[name]
               if layer[other] > layer[name]]  # fmt: skip
    assert not upwards


def test_no_modules_import_one_another_in_a_circle(imports):
    # A package's own file imports from its modules, which name the package only by its folder.
    modules = {name: others - packages_above(name) for name, others in imports.items()}
    try:
        TopologicalSorter(modules).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def packages_above(name):
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}
