"""The documentation site: Markdown pages, and an API reference from the docstrings."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import generated

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
html_static_path = ["_static"]
html_js_files, html_css_files = ["copy.js"], ["copy.css"]
html_baseurl = os.environ.get("SITE_URL", "")  # where the site is published
# What other sites show beside a link. A light and a dark mode come with the theme.
myst_html_meta = {
    "description": "Run any training script from a commit; correct predicted depth",
    "property=og:title": html_title,
    "property=og:image": f"{html_baseurl}_static/card.png",
    "name=twitter:card": "summary_large_image",
}


def keep_bars(app, what, name, obj, options, lines) -> None:  # type: ignore[no-untyped-def]
    """In docstrings |x| is an absolute value; reStructuredText would look for a substitution."""
    lines[:] = [line.replace("|", r"\|") if "`" not in line else line for line in lines]


def setup(app) -> None:  # type: ignore[no-untyped-def]
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("env-get-outdated", generated.outdated)
    app.connect("source-read", generated.fill)
    app.connect("build-finished", generated.finish)
