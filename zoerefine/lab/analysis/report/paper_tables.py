"""tables.tex and tables.md: groups and their comparisons, for a paper and for plain text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unicodedata import category

from zoerefine.base.files.atomic import write_text
from zoerefine.lab.analysis.group_names import metric_text, metric_texts
from zoerefine.lab.analysis.groups import (
    Measure,
    RunGroup,
    not_comparable_note,
    other_jobs,
    samples,
)
from zoerefine.lab.analysis.statistics.comparisons import Difference
from zoerefine.lab.analysis.statistics.significance import CONFIDENCE, ENOUGH_RUNS

LONGEST = 40  # rows; groups.csv has all groups
MINUS = "\N{MINUS SIGN}"
LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "-": "{-}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}", "[": "{[}", "]": "{]}",
    MINUS: "$-$", "\N{PLUS-MINUS SIGN}": r"$\pm$",
}  # fmt: skip
MARKDOWN = {letter: f"\\{letter}" for letter in r"\`*_{}[]()#+-.!|~<>&$"}


@dataclass(frozen=True)
class Table:
    """A table as texts; the best group comes first. It is bold where all can be compared."""

    header: list[str]
    rows: list[list[str]]
    caption: str
    has_best: bool


def write_tables(
    groups: Sequence[RunGroup],
    differences: Sequence[Difference],
    measure: Measure,
    reference: RunGroup | None,
    out: Path,
) -> list[Path]:
    """Write both files; returns their paths.

    Args:
        reference: the group that the others are compared with; None: the best one.
    """
    table = paper_table(groups, differences, measure, reference)
    paths = out / "tables.tex", out / "tables.md"
    for path, text in zip(paths, (as_latex(table), as_markdown(table)), strict=True):
        write_text(path, text)
    return list(paths)


def paper_table(
    groups: Sequence[RunGroup],
    differences: Sequence[Difference],
    measure: Measure,
    reference: RunGroup | None = None,
) -> Table:
    """The groups with scores, the best first, each compared with the reference."""
    scored = [group for group in groups if len(group.scores)]
    beside = reference or (scored[0] if scored else None)
    arrow = "higher is better" if measure.maximize else "lower is better"
    of = samples(scored)
    header = ["group", of.split()[0], f"{measure.label} ({arrow})", "difference", "p"]
    found = {(d.first, d.second): d for d in differences}
    rows = []
    for group in scored[:LONGEST]:
        seeds = str(len(group.scores))
        lost = group.lost - other_jobs(group.runs)
        seeds += f" of {len(group.scores) + lost}" if lost else ""
        one = [group.label, seeds, mean_text(group)]
        rows.append([*one, *comparison_texts(group, beside, found)])
    note = not_comparable_note(groups, measure)
    text = " ".join([*([f"{note}."] if note else []), caption(beside, measure, len(scored), of)])
    return Table(header, rows, text, bool(rows) and not note)


def mean_text(group: RunGroup) -> str:
    """The mean with half its interval, with two digits of the latter."""
    if group.interval is None:
        return metric_text(group.mean)
    half = (group.interval[1] - group.interval[0]) / 2
    return " \N{PLUS-MINUS SIGN} ".join(metric_texts([group.mean, half], digits=2, every=True))


def comparison_texts(
    group: RunGroup, beside: RunGroup | None, found: dict[tuple[str, str], Difference]
) -> tuple[str, str]:
    """The group minus the reference with its interval, and the adjusted p value."""
    if beside is None or group.label == beside.label:
        return "", ""
    difference = found.get((group.label, beside.label))
    sign = 1
    if difference is None:
        difference, sign = found.get((beside.label, group.label)), -1
    if difference is None:
        return "", ""
    bounds = sorted(sign * bound for bound in difference.interval or ())
    text, *between = signed([sign * difference.difference, *bounds])
    if between:
        text += f" [{', '.join(between)}]"
    p = difference.p_adjusted
    return text, "" if p is None else f"{p:.3f}" if p >= 0.001 else "<0.001"


def signed(values: Sequence[float]) -> list[str]:
    """Differences with their signs."""
    return [MINUS * text.startswith("-") + text.lstrip("-") for text in metric_texts(values, "+")]


def caption(beside: RunGroup | None, measure: Measure, groups: int, of: str) -> str:
    """What the columns mean."""
    parts = [
        f"{measure.label}{measure.on_place}: mean over {of}, with half the width of its "
        f"{CONFIDENCE:.0%} Student's t interval from {ENOUGH_RUNS} {of.split()[0]} on."
    ]
    if beside is not None and groups > 1:
        parts.append(
            f"Difference to {beside.label} with Welch's {CONFIDENCE:.0%} interval; p of a "
            "permutation test, adjusted for all comparisons (Holm)."
        )
    if groups > LONGEST:
        parts.append(f"The {LONGEST} best of {groups} groups.")
    return " ".join(parts)


def as_latex(table: Table) -> str:
    """A `table` environment for the package booktabs."""
    rows = [[escaped(cell, LATEX, as_ascii) for cell in row] for row in table.rows]
    if table.has_best:
        rows[0][2] = rf"\textbf{{{rows[0][2]}}}"
    header = " & ".join(escaped(name, LATEX, as_ascii) for name in table.header)
    lines = [
        r"% Needs \usepackage{booktabs} and \usepackage{textcomp}.",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(table.caption, LATEX, as_ascii)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        rf"{header} \\",
        r"\midrule",
        *(rf"{' & '.join(row)} \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_figure(text: str, wide: bool) -> str:
    """A `figure` environment of overview.pdf with this caption; `wide`: over both columns."""
    environment = "figure*" if wide else "figure"
    lines = [
        r"% Needs \usepackage{graphicx} and \usepackage{textcomp}.",
        rf"\begin{{{environment}}}",
        r"\centering",
        r"\includegraphics[width=\linewidth]{overview.pdf}",
        rf"\caption{{{escaped(text, LATEX, as_ascii)}}}",
        rf"\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


def as_markdown(table: Table) -> str:
    """A table as GitHub shows it."""
    rows = [[escaped(cell, MARKDOWN, str) for cell in row] for row in table.rows]
    if table.has_best:
        rows[0][2] = f"**{rows[0][2]}**"
    lines = [table.header, ["---", *["---:"] * (len(table.header) - 1)], *rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{body}\n\n{escaped(table.caption, MARKDOWN, str)}\n"


def escaped(text: str, special: dict[str, str], other: Callable[[str], str]) -> str:
    """Text that means itself: control characters and bidirectional marks are shown by number."""
    return "".join(
        special[letter] if letter in special
        else f"U+{ord(letter):04X}" if category(letter)[0] == "C"
        else letter if letter.isascii() else other(letter)
        for letter in text
    )  # fmt: skip


def as_ascii(letter: str) -> str:
    """A letter that pdfTeX may not know, by its number."""
    return f"U+{ord(letter):04X}"
