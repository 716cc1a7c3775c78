"""tables.tex and tables.md: names mean themselves, numbers agree with groups.csv."""

import shutil
import subprocess

import pytest

from tests.tables import csv_rows
from zoerefine.lab.analysis.analyze import analyze

ODD = [r"\input{/etc/passwd}", "50% & more_or #less $x^2$ ~", "<b>|bold|</b> `code`",
       "\u202egnp.exe", "深度", "--- a -- b", "[0, 1]", "=1+1"]  # fmt: skip


def add_groups(runs, names):
    for number, name in enumerate(names):
        for seed in range(4):
            value = 0.1 + 0.05 * number + 0.001 * seed
            runs.add(f"r{number}-{seed}", {"NAME": name}, seed=seed, scenes=(value,))


def compiled(folder, figure=""):
    """LaTeX's run over the table and the figure; skips without LaTeX."""
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not installed: apt install texlive-latex-recommended")
    (folder / "paper.tex").write_text(
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs,graphicx,textcomp}"
        rf"\begin{{document}}\input{{tables.tex}}{figure}\end{{document}}"
    )
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)


def test_odd_names_are_text_in_latex_and_compile(runs, tmp_path):
    add_groups(runs, ODD)
    analyze([str(runs.folder)], tmp_path)
    tex = (tmp_path / "tables.tex").read_text()
    assert r"\input" not in tex and "\u202e" not in tex and tex.isascii()
    done = compiled(tmp_path)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_graph_of_a_paper_has_its_caption_in_latex(runs, tmp_path):
    add_groups(runs, ODD[:3])
    analyze([str(runs.folder)], tmp_path, style="one-column")
    caption = (tmp_path / "overview.tex").read_text()
    assert "Line and number: mean over seeds." in caption and caption.isascii()
    done = compiled(tmp_path, r"\input{overview.tex}")
    assert done.returncode == 0, done.stdout[-2000:]
    analyze([str(runs.folder)], tmp_path)
    assert not (tmp_path / "overview.tex").exists()


def test_odd_names_are_text_in_markdown(runs, tmp_path):
    add_groups(runs, ODD)
    analyze([str(runs.folder)], tmp_path)
    lines = (tmp_path / "tables.md").read_text().split("\n\n")[0].splitlines()
    assert len(lines) == 2 + len(ODD)
    unescaped = [line.replace("\\|", "") for line in lines]
    assert {line.count("|") for line in unescaped} == {6}
    assert any(r"\<b\>" in line for line in lines)


def test_numbers_are_those_of_the_csv_files(runs, tmp_path):
    add_groups(runs, ["a", "b", "c"])
    analyze([str(runs.folder)], tmp_path, baseline="b")
    groups = {row["group"]: row for row in csv_rows(tmp_path / "groups.csv")}
    differences = {row["first"]: row for row in csv_rows(tmp_path / "differences.csv")}
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (tmp_path / "tables.md").read_text().splitlines()[2:5]
    ]
    for name, seeds, mean, difference, p in rows:
        group = groups[name]
        half = (float(group["high"]) - float(group["low"])) / 2
        assert seeds == group["scored"] == "4"
        assert f"{float(group['mean']):.4f} \u00b1 {half:.4f}".replace(".", "\\.") in mean
        if name == "b":
            assert (difference, p) == ("", "")
            continue
        row = differences[name]
        expected = f"{float(row['difference']):+.4f}".replace("-", "\u2212")
        assert difference.replace("\\", "").startswith(expected)
        assert p.replace("\\", "") == f"{float(row['p_adjusted']):.3f}"
    assert rows[0][2].startswith("**") and not rows[1][2].startswith("**")
