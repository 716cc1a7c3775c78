"""The documentation site: Markdown pages, and an API reference from the docstrings."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from zoerefine import __version__

project = "zoerefine"
author = "The zoerefine authors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

# Docstrings are plain text: a word in single backticks is code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"zoerefine {__version__}"
html_copy_source = False


def keep_bars(app, what, name, obj, options, lines) -> None:  # type: ignore[no-untyped-def]
    """In docstrings |x| is an absolute value; reStructuredText would look for a substitution."""
    lines[:] = [line.replace("|", r"\|") if "`" not in line else line for line in lines]


def setup(app) -> None:  # type: ignore[no-untyped-def]
    app.connect("autodoc-process-docstring", keep_bars)
