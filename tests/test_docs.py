"""The documentation: links lead somewhere, examples run, the site builds without a warning."""

import ast
import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.processes import run_program

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
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    run_program([sys.executable, "examples.py"], cwd=tmp_path, env=variables)


NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def test_the_notebook_is_stored_with_its_outputs():
    text = NOTEBOOK.read_text()
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert sum("image/png" in str(cell["outputs"]) for cell in code) >= 3
    assert "/tmp/" not in text


def test_the_notebook_runs_in_an_empty_folder(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="pip install -r requirements-docs.lock")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=900, startup_timeout=300, kernel_name="python3",
        resources={"metadata": {"path": tmp_path}},
    ).execute()  # fmt: skip


# What the build writes into a page.
GENERATED = {
    "configuration": "TRAIN.ACCUMULATE",
    "commands": "--requeues",
    "results": "points-redkitchen-2026-11-23",
    "reference": "zoerefine.current_run.log",
    "index": "Tutorials",
}


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason="pip install -r requirements-docs.lock")
    sphinx = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    run_program([*sphinx, "docs", tmp_path / "html"], cwd=ROOT)
    html = {name: (tmp_path / "html" / f"{name}.html").read_text() for name in GENERATED}
    assert not {name for name, shown in GENERATED.items() if shown not in html[name]}
    assert all("copy.js" in page and "og:image" in page for page in html.values())
    assert (tmp_path / "html" / "_static" / "card.png").exists()


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
    first = text[
        : text.index("![")
    ]  # what it is, for whom, why not MLflow, new rooms, how to install
    answers = ("training script", "researchers", "robots", "MLflow", "never seen", "pip install")
    assert not [answer for answer in answers if answer not in first]
    assert len(first.splitlines()) <= 25


@pytest.mark.parametrize("page", ["README.md", "docs/engines.md"])
def test_readme_and_docs_list_every_engine(page):
    from zoerefine.base.registries import ENGINES

    assert not {name for name in ENGINES if f"| `{name}` |" not in (ROOT / page).read_text()}


def test_every_message_of_the_troubleshooting_page_is_in_the_code():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| ", page, re.MULTILINE)
    messages = [words for row in rows for words in re.findall(r"`(.+?)`", row)]
    assert len(messages) >= 25
    texts = "\n".join(texts_of_code())
    assert not [words for words in messages if words not in texts]


def texts_of_code():
    """Every text in the code of the package, with {} where a value stands."""
    for path in ROOT.glob("zoerefine/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_pages_name_only_options_that_their_command_has_and_variables_that_exist():
    """Options of commands in blocks, tables and sentences, and variables of zoerefine."""
    known: dict[str, set[str]] = {}
    for line in (ROOT / "tests" / "options_and_keys.txt").read_text().splitlines():
        if found := re.match(r"([a-z]+)(?: [a-z]+)* (--[\w-]+)$", line):
            known.setdefault(found[1], {"--help-all"}).add(found[2])
    checked = 0
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for name, words in re.findall(r"zoerefine ([a-z]+)((?: [^`\n|#]+)?)", text):
            options = re.findall(r"(?<=\s)--[a-z][\w-]*", words.partition(" -- ")[0])
            checked += len(options)
            assert not set(options) - known.get(name, set(options)), f"{page.name}: {name} {words}"
    assert checked > 200
    texts = "\n".join(texts_of_code())
    pages = (ROOT / "docs" / name for name in ("environment-variables.md", "run-contract.md"))
    named = re.findall(r"`(ZOEREFINE_\w+)`", "".join(page.read_text() for page in pages))
    assert len(named) >= 7
    assert not [name for name in named if name not in texts]


def test_the_page_of_deleting_names_options_that_exist():
    from zoerefine.commands import run, runs

    page = (ROOT / "docs" / "deleting.md").read_text()
    known = {*run.parser()._option_string_actions, *runs.options()._option_string_actions}
    assert set(re.findall(r"--[a-z-]+[a-z]", page)) - {"--trust"} <= known


@pytest.mark.parametrize(
    ("page", "file", "measure", "shown"),
    [
        ("results.md", "points-rooms-2026-11-23", "50 points, 480x640",
         "{:.0f} ms with 50 points"),
        ("results.md", "points-rooms-2026-11-23", "400 points, 480x640", "{:.0f} ms with 400"),
        ("results.md", "points-redkitchen-2026-11-23", "50 points, 3% noise: spread", "| {:.3f} |"),
        ("results.md", "points-redkitchen-quick-2026-11-25", "50 points: coverage",
         "0.915, {:.3f} and"),
        ("results.md", "points-redkitchen-quick-2026-11-25", "50 points, mean over frames",
         "0.158, {:.3f}, 0.048"),
        ("results.md", "measured-2026-11-26", "3 frames of 5 points: / single factor",
         "| 3 frames of 5 points | {:.3f} |"),
        ("results.md", "measured-2026-11-26",
         "3 frames of 5 points: rooms with coverage .85 to .95", "87%; {:.0%}; 88% |"),
        ("results.md", "measured-2026-11-26", "another camera, 3 frames of 5 points: coverage",
         "87%; 64%; {:.0%} |"),
        ("results.md", "engine-quick-2026-11-22", "192x256 batch 1 openvino bf16: against eager",
         "{:.2f}x"),
        ("results.md", "engine-quick-2026-11-22", "192x256 batch 1 torchscript bf16: against eager",
         "{:.2f}x"),
        ("results.md", "analyze-2026-11-25", "10000 runs, without the cache file",
         "in {:.1f} s and"),
        ("results.md", "launch-2026-11-23", "mlflow run", "`mlflow run` takes {:.2f} s"),
        ("results.md", "rooms-2026-11-22", "rooms with a coverage of the 90% band of 0.85 to 0.95",
         "{:.0%} of the single rooms"),
    ],
)  # fmt: skip
def test_a_figure_of_the_docs_is_that_of_its_results(page, file, measure, shown):
    rows = json.loads((ROOT / "benchmarks" / "results" / f"{file}.json").read_text())
    (value,) = (row["value"] for row in rows if row.get("measure") == measure)
    assert shown.format(value) in (ROOT / "docs" / page).read_text()
