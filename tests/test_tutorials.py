"""The tutorials: every command of them, as it is printed, in an empty folder.

A block of `sh` is run; a block of another language whose first line is `# NAME` is that file. What
needs a network, a camera or a cluster of the reader's own stands in blocks of `console`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm import needs_slurm

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(sh|python)\n(?:# (\S+\.py)\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)


def as_script(page):
    """All blocks of a page as one shell script."""
    parts = ["set -euo pipefail"]
    for kind, name, text in BLOCK.findall((ROOT / "docs" / page).read_text()):
        parts.append(text if kind == "sh" else f"cat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE")
    return "\n".join(parts)


@pytest.fixture
def follow(tmp_path, monkeypatch):
    """Run a page in an empty folder: follow("tutorial-paper.md") -> the output."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in (("zoerefine", "-m zoerefine"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("ZOEREFINE_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()

    def run(page):
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        done = subprocess.run(
            ["bash", "-c", as_script(page)], cwd=tmp_path / "here", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    return run


def test_own_script(follow, tmp_path):
    output = follow("tutorial-own-script.md")
    assert "REPRODUCED: 21 values are exactly the same" in output
    assert (tmp_path / "here" / "digits" / "report" / "report.html").exists()


def test_paper(follow, tmp_path):
    output = follow("tutorial-paper.md")
    assert "REPRODUCED" in output
    assert "| ours | 6 |" in output
    report = tmp_path / "here" / "paper" / "report"
    assert {"tables.tex", "overview.pdf", "overview.tex"} <= {p.name for p in report.iterdir()}


def test_own_data(follow):
    output = follow("tutorial-own-data.md")
    assert "8 scenes, 8 clips, 48 frames" in output


def test_robot(follow):
    output = follow("tutorial-robot.md")
    assert output.count(" m ahead") == 6


@needs_slurm
def test_cluster(follow, slurm, tmp_path):
    output = follow("tutorial-cluster.md")
    assert output.count("finished") >= 4
    assert (tmp_path / "here" / "sweep" / "report" / "report.html").exists()
