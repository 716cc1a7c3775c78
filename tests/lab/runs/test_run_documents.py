"""runs/README.md names every file of a run, and every fact of its provenance.json."""

import re

import pytest

from tests.conftest import CHECKOUT
from zoerefine.base.run_dir import RunDir

README = (CHECKOUT / "runs" / "README.md").read_text()
NAMED = {name.rstrip("/") for text in re.findall(r"`([^`]+)`", README) for name in text.split("/")}
# Names that hold a number or a digest. `<name>` and `<id>` alone would fit every file.
FOLDERS = {"<name>", "<id>"}
PATTERNS = [re.compile(re.sub(r"<\w+>", "[0-9a-f-]+", re.escape(name))) for name in NAMED - FOLDERS]
INSIDE = ("tb", "builds", "artifacts", "report", "left")  # folders that are described as a whole

LAUNCHED = """
import zoerefine.current_run
open("left.txt", "w").write("left")
"""


@pytest.fixture
def launched(foreign_repository, script, tmp_path, monkeypatch):
    """The run of another project's script that imports zoerefine, with uncommitted changes."""
    monkeypatch.setenv("ZOEREFINE_HOME", str(tmp_path / "home"))
    repository = foreign_repository("argparse_csv")
    (repository.folder / "uses_it.py").write_text(LAUNCHED)
    (tmp_path / "job.yaml").write_text("KEY: 1\n")
    words = ("--repo", repository.folder, "--commit", "HEAD", "--allow-dirty")
    script("run_from_commit", *words, "--config", "job.yaml", "--module", "uses_it.py")
    return RunDir(tmp_path / "runs" / "job" / "latest")


def is_named(name):
    return any(pattern.fullmatch(name) for pattern in PATTERNS)


def check_documents(run):
    paths = [path.relative_to(run.path) for path in run.path.rglob("*") if not path.is_dir()]
    parts = {part for path in paths for part in parts_of(path)}
    assert {part for part in parts if not is_named(part)} == set()
    assert {fact for fact in run.read_json(run.provenance_file) if fact not in NAMED} == set()


def parts_of(path):
    """The names in a path, those below a folder that is described as a whole left out."""
    for part in path.parts:
        yield part
        if part in INSIDE:
            return


def test_the_readme_names_everything_in_a_training(exported_run):
    check_documents(exported_run)


def test_the_readme_names_everything_in_a_study(study):
    check_documents(study)
    check_documents(RunDir(study.path / "best"))
    check_documents(RunDir(study.path / "trials" / "0000"))


def test_the_readme_names_everything_in_a_launch(launched):
    assert (launched.left / "left.txt").exists()
    assert "library" in launched.read_json(launched.provenance_file)
    check_documents(launched)
