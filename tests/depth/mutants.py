"""Modules that are loaded from their own file with parts of its text replaced."""

import importlib.util
import sys
from pathlib import Path


def mutant_of(module, replacements, folder, monkeypatch):
    """The module with these replacements: {old text: new text}, each found exactly once."""
    text = Path(module.__file__).read_text()
    for old, new in replacements.items():
        assert text.count(old) == 1, f"{module.__name__} has changed: adapt the mutant"
        text = text.replace(old, new)
    path = folder / "mutant.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("mutant", path)
    mutant = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, mutant)  # dataclasses look their module up
    spec.loader.exec_module(mutant)
    return mutant
