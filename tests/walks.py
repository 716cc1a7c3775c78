"""Which files of the package a command passes, in all of its processes."""

import os
import sys
from pathlib import Path

import zoerefine
from tests.processes import run_program

PACKAGE = Path(zoerefine.__file__).parent
PROGRAM = "import sys; from zoerefine.cli import main; sys.exit(main(sys.argv[1:]))"
# Every process notes the files whose functions are called. What is called while a module is
# imported does not count.
NOTES = """
import atexit, os, sys, threading

package, files = os.environ["WALK_PACKAGE"], set()
begins, apart = os.environ["WALK_BEGINS"].split(), os.environ["WALK_APART"].split()

def note(frame, event, _):
    name, callers = frame.f_code.co_filename, []
    if event != "call" or frame.f_code.co_name == "<module>" or not name.startswith(package):
        return
    while frame := frame.f_back:
        if frame.f_code.co_name == "<module>" and frame.f_back:
            return
        callers.append(frame.f_code.co_filename)
    if (files or name in begins) and set(callers).isdisjoint(apart):
        files.add(name)

def save():
    with open(os.environ["WALK_NOTES"], "a") as notes:
        notes.writelines(f"{name}\\n" for name in files)

atexit.register(save)
threading.setprofile(note)
sys.setprofile(note)
"""


def files_passed(folder, *words, begins, apart=()):
    """The files that a command passes, relative to the package.

    Args:
        begins: files whose first call begins the walk of a process.
        apart: files that count, and what they call does not.
    """
    hook, notes = folder / "hook", folder / "notes"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(NOTES)
    variables = {"PYTHONPATH": hook, "WALK_NOTES": notes, "WALK_PACKAGE": PACKAGE}
    for name, places in (("WALK_BEGINS", begins), ("WALK_APART", apart)):
        variables[name] = " ".join(str(PACKAGE / place) for place in places)
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    run_program([sys.executable, "-c", PROGRAM, *words], cwd=folder, env=environment)
    return {str(Path(line).relative_to(PACKAGE)) for line in notes.read_text().splitlines()}
