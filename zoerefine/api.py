"""The Python API: what the commands do, as functions for a script or a notebook.

`import zoerefine as zr` offers all of it. Nothing heavy is imported before a function is called.
"""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir

if TYPE_CHECKING:
    from yacs.config import CfgNode

    from zoerefine.lab.runs.record import Collection


def train(cfg: "CfgNode") -> RunDir:
    """Train a refiner; an unfinished run resumes, a finished one is returned as it is.

    Raises `UserError` for bad data or a loss that is not finite; `KeyboardInterrupt` after a
    checkpoint has been written.
    """
    from zoerefine.base.config import load_config
    from zoerefine.base.machine.one_at_a_time import as_in_a_new_process
    from zoerefine.depth.training.job import run_training

    with as_in_a_new_process():
        return run_training(load_config(cfg))  # keys and values may have been set in it since


def search(cfg: "CfgNode") -> RunDir:
    """Search what the config lists under SEARCH; returns the study's run.

    `load_run(study.path / "best")` is the best run where STUDY.THEN trains it. Raises `UserError`
    where there is nothing to search, or every trial failed.
    """
    from zoerefine.base.config import load_config
    from zoerefine.base.machine.one_at_a_time import as_in_a_new_process

    cfg = load_config(cfg)
    with as_in_a_new_process():  # imports, too: rich draws random numbers in one
        from zoerefine.depth.study.trials import OwnTraining
        from zoerefine.lab.search.driver import run_study
        from zoerefine.lab.search.space.checks import check_search_space

        return run_study(OwnTraining(cfg, check_search_space(cfg)))


def export(run: RunDir | str | Path, engine: str = "auto", precision: str = "auto") -> Path:
    """Build an engine from a run's best weights, compare it with them, and publish it.

    Args:
        run: a finished run.
        engine: auto, or one of `zoerefine export --help`, such as torchscript or tensorrt.
        precision: auto, fp32, fp16, bf16 or int8.

    Returns:
        The bundle's path, for `Refiner.load`.

    Raises:
        UserError: no trained weights; the engine cannot be built here, or is too far from the
            refiner.
    """
    from zoerefine.base.machine.one_at_a_time import as_in_a_new_process
    from zoerefine.depth.exporting.export import export as build

    with as_in_a_new_process():
        return build(load_run(run), engine, precision)


def load_run(run: RunDir | str | Path) -> RunDir:
    """A run's folder: `.results()`, `.metrics()`, `.status()` and the paths of its files.

    Raises `UserError` where there is no run.
    """
    if isinstance(run, RunDir):
        return run
    found = RunDir(Path(run).resolve())
    if not found.status_file.exists():
        raise UserError(f"{run} is not a run: it has no {found.status_file.name}")
    return found


class RunTable(list[dict[str, Any]]):
    """Rows of runs: a list of flat dictionaries, drawn as a table in a notebook.

    `pandas.DataFrame(table)` takes it as it is.
    """

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in the order in which they first appear."""
        return list(dict.fromkeys(name for row in self for name in row))

    def select(self, *columns: str) -> "RunTable":
        """The same rows with these columns alone."""
        return RunTable({name: row.get(name) for name in columns} for row in self)

    def _repr_html_(self) -> str:
        def cells(values: Sequence[Any], tag: str) -> str:
            return "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values)

        rows = [[row.get(name, "") for name in self.columns] for row in self]
        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
        return f"<table><tr>{cells(self.columns, 'th')}</tr>{body}</table>"


def load_runs(*patterns: RunDir | str | Path, where: str = "") -> RunTable:
    """Runs as a table: path, state, seed, commit, the settings that differ, final metrics.

    Args:
        patterns: runs, their folders, studies, or globs of them.
        where: a filter such as `"TRAIN.LR<1e-3 and MODEL.NAME=='small'"`.

    Raises:
        UserError: nothing matches, or no run can be read.
    """
    from zoerefine.lab.analysis.groups import choose_measure, make_groups
    from zoerefine.lab.analysis.report.tables import run_rows
    from zoerefine.lab.runs.collect import collect
    from zoerefine.lab.runs.filter import parse_filter

    keeps = parse_filter(where) if where else None
    collection = collect(list(map(pattern_of, patterns)), keeps)
    groups = make_groups(collection.runs, choose_measure(collection.runs))
    header, rows = run_rows(collection, groups)
    return RunTable(dict(zip(header, row, strict=True)) for row in rows)


def pattern_of(run: RunDir | str | Path) -> str:
    """What the command line calls a run."""
    return str(run.path if isinstance(run, RunDir) else run)


def analyze(
    patterns: RunDir | str | Path | Sequence[RunDir | str | Path],
    out: str | Path,
    where: str = "",
    by: str | None = None,
    metrics: str | Sequence[str] = (),
    maximize: bool = False,
    baseline: str = "",
    style: str = "page",
) -> "Collection":
    """Compare many runs: one graph, one page, and tables, written to the folder `out`.

    Args:
        patterns: runs, their folders, studies, or globs of them; one or several.
        out: gets overview.png, report.html, runs.csv, groups.csv and the rest.
        where: keeps the runs that match.
        by: the setting to group by; None: every setting that differs but the seed.
        metrics: what to compare, by name; empty: AbsRel, or the only metric of other scripts' runs.
        maximize: whether higher values of these metrics are better.
        baseline: the name of the group that all others are compared with; empty: every pair.
        style: of the graph: page, two-columns or one-column.

    Returns:
        The runs that were read, and those left out with the reason.
    """
    from zoerefine.lab.analysis.analyze import analyze as compare

    listed = [patterns] if isinstance(patterns, RunDir | str | Path) else patterns
    named = list(map(pattern_of, listed))
    metrics = [metrics] if isinstance(metrics, str) else metrics
    return compare(named, Path(out), where, by, metrics, maximize, baseline, style)[0]
