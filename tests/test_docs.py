"""The documentation: links lead somewhere, examples run, the site builds without a warning."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("runs/*.md"),
        *ROOT.glob(".github/*.md"),
    ]
)
LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_files_lead_to_a_file_and_a_heading(page):
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"https?://|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name}: {target}"


def test_the_examples_of_the_api_page_run(world, tmp_path):
    """In order, in one process, in a folder of their own."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/api.md").read_text(), re.M | re.S)
    assert len(blocks) >= 5
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "synthetic").symlink_to(world)
    (tmp_path / "examples.py").write_text(
        "if __name__ == '__main__':\n" + re.sub(r"^", "    ", "".join(blocks), flags=re.M)
    )
    done = subprocess.run(
        [sys.executable, "examples.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_notebook_runs(world, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="pip install -r requirements-docs.lock")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "synthetic").symlink_to(world)
    notebook = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=900, startup_timeout=300, kernel_name="python3",
        resources={"metadata": {"path": tmp_path}},
    ).execute()  # fmt: skip


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason="pip install -r requirements-docs.lock")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet",
         "docs", str(tmp_path / "html")],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "reference.html").exists()


MARKER = re.compile(r"<!-- results/(?P<file>\S+?): (?P<measure>.+?) = (?P<shown>[\d.]+) -->")
NO_RESULTS = {"3.11", "0.1", "2.0", "4.0", "0.2", "0.5"}  # versions, licences, a value, an aim


def test_every_figure_of_the_readme_is_in_the_results_that_its_marker_names():
    text = FENCE.sub("", (ROOT / "README.md").read_text())
    marked = 0
    for line in text.splitlines():
        words = re.sub(r"<!--.*?-->|\]\([^)]*\)", "", line)
        figures = set(re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", words)) - NO_RESULTS
        markers = list(MARKER.finditer(line))
        assert figures == {marker["shown"] for marker in markers}, line
        for marker in markers:
            rows = json.loads((ROOT / "benchmarks" / "results" / marker["file"]).read_text())
            (value,) = (row["value"] for row in rows if row["measure"] == marker["measure"])
            decimals = len(marker["shown"].partition(".")[2])
            assert f"{value:.{decimals}f}" == marker["shown"], marker[0]
            marked += 1
    assert marked >= 12


def test_the_readme_fits_its_readers():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 140
    assert text.index("make test") < text.index("## ")


def test_the_readme_lists_every_engine():
    from zoerefine.base.registries import ENGINES

    text = (ROOT / "README.md").read_text()
    assert not {name for name in ENGINES if f"| `{name}` |" not in text}


@pytest.mark.parametrize(
    ("page", "file", "measure", "shown"),
    [
        ("points.md", "points-rooms-2026-11-23", "50 points, 480x640", "{:.0f} ms with 50 points"),
        ("points.md", "points-rooms-2026-11-23", "400 points, 480x640", "{:.0f} ms with 400"),
        ("models.md", "rooms-2026-11-22", "rooms with a coverage of the 90% band of 0.85 to 0.95",
         "{:.0%} of the single rooms"),
    ],
)  # fmt: skip
def test_a_figure_of_the_docs_is_that_of_its_results(page, file, measure, shown):
    rows = json.loads((ROOT / "benchmarks" / "results" / f"{file}.json").read_text())
    (value,) = (row["value"] for row in rows if row["measure"] == measure)
    assert shown.format(value) in (ROOT / "docs" / page).read_text()
