"""Imports: down the wings, through the packages' open modules, never in a circle.

CONTRIBUTING.md draws the wings. A package's `OPEN` names what others may import from it.
"""

import ast
import importlib
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.processes import run_new_python

ROOT = Path(__file__).parents[1]
# The package's own file offers the API's functions, which import what they need when called.
PACKAGE = "zoerefine"
WINGS = ("base", "lab", "depth")  # whatever stands beside them is above them


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


def floor(name):
    part = name.split(".")[1]
    return WINGS.index(part) if part in WINGS else len(WINGS)


def test_no_wing_imports_from_a_higher_one(imports):
    upwards = [f"{name} -> {other}" for name in imports if name != PACKAGE
               for other in imports[name] if floor(other) > floor(name)]  # fmt: skip
    assert not upwards


def test_a_package_is_imported_through_its_open_modules(imports):
    """`OPEN` is exact: what nobody else imports is not in it."""
    used = {}
    for name, others in imports.items():
        for other in others:
            for package, child in steps_into(other):
                if not f"{name}.".startswith(f"{package}."):
                    used.setdefault(package, set()).add(child)
    declared = {name: set(getattr(importlib.import_module(name), "OPEN", ()))
                for name in {*used, *packages(imports)}}  # fmt: skip
    assert declared == {name: used.get(name, set()) for name in declared}


def steps_into(module):
    """The packages below the wings on the way to a module, each with its child on that way."""
    parts = module.split(".")
    return [(".".join(parts[:count]), parts[count]) for count in range(3, len(parts))]


def packages(imports):
    """Packages below the wings."""
    inits = (ROOT / PACKAGE).glob("*/*/**/__init__.py")
    return [name for name in map(module_name, inits) if name.split(".")[1] in WINGS]


def test_data_and_points_do_not_import_each_other(imports):
    data, points = f"{PACKAGE}.depth.data.", f"{PACKAGE}.depth.points"
    assert not [f"{name} -> {other}" for name in imports if name.startswith(data)
                for other in imports[name] if other.startswith(points)]  # fmt: skip


def test_the_laboratory_loads_neither_depth_nor_torch():
    program = (
        "import pkgutil, sys, importlib, zoerefine.lab as lab\n"
        "for module in pkgutil.walk_packages(lab.__path__, 'zoerefine.lab.'):\n"
        "    importlib.import_module(module.name)\n"
        "print({'torch', 'zoerefine.depth'} & set(sys.modules))"
    )
    assert run_new_python(program).stdout == "set()\n"


def test_no_modules_import_one_another_in_a_circle(imports):
    # A package's own file imports from its modules, which name the package only by its folder.
    modules = {name: others - packages_above(name) for name, others in imports.items()}
    try:
        TopologicalSorter(modules).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_what_runs_and_studies_store_names_no_module(exported_run, study):
    """So that moving a file breaks none of them. TorchScript's debug text names sources, and
    provenance.json the files that were changed in the working tree."""
    module = re.compile(rb"zoerefine[./](base|lab|depth)\b")
    stored = [
        path
        for run in (exported_run, study)
        for path in run.path.rglob("*")
        if path.is_file() and path.suffix != ".ts" and path.name != "provenance.json"
    ]
    assert {".yaml", ".json", ".pt", ".db"} <= {path.suffix for path in stored}
    assert not [path for path in stored if module.search(path.read_bytes())]


def packages_above(name):
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}
