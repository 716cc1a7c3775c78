"""All logs of a run, and the metrics that they hold together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file
from zoerefine.base.messages import first_few
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.record.times_and_speeds import is_time
from zoerefine.lab.runs.metrics import csv_logs, text_logs
from zoerefine.lab.runs.metrics.attempts import (
    lasting_place,
    named_points,
    place_on_any_machine,
)
from zoerefine.lab.runs.metrics.find_files import (
    find_files,
    kind_of,
    place_of_rows,
)
from zoerefine.lab.runs.metrics.metric_log import NAMED, Kind, MetricLog
from zoerefine.lab.runs.metrics.pattern import MetricPattern, parse_pattern
from zoerefine.lab.runs.metrics.steps import (
    VARYING,
    Points,
    RunMetrics,
    as_series,
    same_number,
    without_steps,
)


@dataclass(frozen=True)
class KnownLogs:
    """What tables and JSON lines had before a job wrote to them: bytes and SHA-256, by their paths
    in the run. It counts as known only where the file still begins with it.

    Attributes:
        before: when the job was started last.
        committed: in the commit.
    """

    before: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    committed: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def bytes_of(self, path: Path, name: str) -> tuple[int, int]:
        """How many bytes of a log are of earlier attempts, and how many are the commit's."""
        known = self.before.get(name), self.committed.get(name)
        return bytes_if_same(path, known[0]), bytes_if_same(path, known[1])


def bytes_if_same(path: Path, known: tuple[int, str] | None) -> int:
    """The number of bytes that are known of a file, if it begins with them."""
    if known is None:
        return 0
    size, digest = known
    with open(path, "rb") as file:
        return size if sha256(file.read(size)).hexdigest() == digest else 0


@dataclass
class RunLogs:
    """The logs of a run, each read as far as it was written at the last update.

    Attributes:
        patterns: find metrics in the job's output.
        starts: how many bytes our own logs had when the job was started last, by their names.
        known: what other logs had then, or have in the commit.
        attempt: how often the job was started; 0 where that is not known.
        printing: how many processes of the job print into its output.
        logs: by path, in the order in which later values replace earlier ones.
        results: the numbers of results.json.
        faults: of files other than the logs.
    """

    run: RunDir
    patterns: Sequence[str] = ()
    starts: Mapping[str, int] = field(default_factory=dict)
    known: KnownLogs = field(default_factory=KnownLogs)
    attempt: int = 0
    printing: int = 1
    logs: dict[Path, MetricLog] = field(default_factory=dict)
    results: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def update(self, workspace: Path | None = None, since: float = 0.0) -> None:
        """Find logs that are new, and read what was written since the last call.

        Args:
            workspace: a folder in which the job is still writing; None: it has ended.
            since: only the workspace's files that were written after this time, in seconds since
                the epoch, are the job's.
        """
        self.faults = []
        self._read_results()
        ended = workspace is None and self._is_finished()
        for log in self._find(workspace, since):
            self._read(self.logs.setdefault(log.path, log), ended)
        for path in [path for path in self.logs if not path.exists()]:
            del self.logs[path]  # moved into the run

    def _is_finished(self) -> bool:
        try:
            return self.run.status().state == "finished"
        except UserError as error:
            self.faults.append(str(error))
            return False

    def _read_results(self) -> None:
        self.results, fault = text_logs.read_results(self.run.results_file)
        if fault:
            self.faults.append(f"{self.run.results_file.name}: {fault}")

    def _read(self, log: MetricLog, ended: bool) -> None:
        try:
            log.update(ended)
        except FileNotFoundError:  # moved into the run at this moment
            self.logs.pop(log.path)
        except OSError as error:
            log.faults["read"] = f"it cannot be read: {error.strerror}"

    def _find(self, workspace: Path | None, since: float) -> Iterator[MetricLog]:
        """Every log that exists now; files of a run that writes metrics.jsonl are not searched."""
        path = self.run.metrics_file
        if path.is_file():
            yield text_logs.JsonLog(path, path.name, since=self.starts.get(path.name, 0))
        if not (path in self.logs and self.logs[path].points):
            others = (self.run.results_file, self.run.log_file)
            own = (path for path in find_files(self.run.path) if path not in others)
            again = self._restarted()
            yield from self._logs_in(own, self.run.path, self.run.left, restarted=again)
            if workspace is not None:
                files = find_files(workspace, since)
                yield from self._logs_in(files, workspace, since=since, restarted=again)
        path = self.run.log_file
        if self.patterns and path.is_file():
            since = self.starts.get(path.name, 0)
            patterns = self._parsed_patterns()
            yield text_logs.OutputLog(
                path, path.name, since=since, patterns=patterns, printing=self.printing
            )

    def _logs_in(
        self,
        files: Iterable[Path],
        root: Path,
        left: Path | None = None,
        since: float = 0.0,
        restarted: float = 0.0,
    ) -> Iterator[MetricLog]:
        """The logs of event files (one for each folder), of tables and of stores of trackers.

        Args:
            root: their places are relative to it.
            left: a folder below it; places of files there are relative to this folder. None: the
                workspace, whose files are moved there.
        """
        for path in files:
            if path in self.logs:  # what it had before is looked up once
                yield self.logs[path]
            if path in self.logs or not (kind := kind_of(path)):
                continue
            base = left if left is not None and path.is_relative_to(left) else root
            place = path.relative_to(base)
            name = str(place if left and base is root else RunDir.left / place)
            start, skipped = self.known.bytes_of(path, name)
            if kind == "events":
                from zoerefine.lab.runs.metrics.events import EventLog  # late: it needs numpy

                yield EventLog(path.parent, str(place.parent), after=since, restarted=restarted)
            elif kind == "table":
                name = str(place.with_suffix(""))
                yield csv_logs.CsvLog(path, name, since=start, skipped=skipped)
            elif kind == "rows":
                place_text = place_of_rows(path, place)
                yield text_logs.RowsLog(path, place_text, since=start, skipped=skipped)
            else:
                from zoerefine.lab.runs.trackers import stores  # late: a circle

                if store := stores.find_store(path):
                    place = store.path.relative_to(base).with_suffix("")
                    again = bool(restarted)
                    yield stores.StoreLog(store.path, str(place), store=store, is_resumed=again)

    def _restarted(self) -> float:
        """When the job was started again, in seconds since the epoch; 0 where it was not."""
        with suppress(UserError):
            return self.run.status().started if self.attempt > 1 else 0.0
        return 0.0

    def undecided(self) -> set[str]:
        """Metrics whose steps may begin again in every epoch, with values of one so far."""
        found = (pair for log in self.logs.values() for pair in log.counted.items())
        return {name for name, one in found if len(one.by_coarse) == 1 and not one.restarts}

    def _parsed_patterns(self) -> list[MetricPattern]:
        found = []
        for text in self.patterns:
            try:
                found.append(parse_pattern(text))
            except UserError as error:
                self.faults.append(str(error))
        return found

    def metrics(self) -> RunMetrics:
        """What all logs hold. Each metric is taken from the first kind of log that has it."""
        found: dict[str, Points] = {}
        finals: dict[str, float] = {}
        used: list[MetricLog] = []
        restarted, kinds = self._restarted(), self._by_kind()
        text_logs.read_reports([*self.logs.values()], restarted)
        for logs in kinds:
            named = named_points(logs, restarted)
            new = {name: (points, end) for name, points, end in named if name not in found}
            stated = {name: value for log in logs for name, value in log.finals.items()}
            stated |= {name: end for name, (_, end) in new.items() if end is not None}
            finals |= {name: value for name, value in stated.items() if name not in found}
            found |= {name: points for name, (points, _) in new.items()}
            used += logs
        series = {name: as_series(points) for name, points in found.items()}
        finals = {name: one.values[-1] for name, one in series.items()} | finals
        places = [self._shown(log) for log in used if log.points or log.finals]
        places += [self.run.results_file.name] if self.results else []
        noted = [log for log in used if not (log.may_be_data and (series or self.results))]
        faults = [(log, fault) for log in noted for fault in log.faults.values()]
        faults += [(log, rows_without_steps(log)) for log in noted]
        if self.attempt:
            faults += [(log, comes_again(log)) for log in used if "parts" not in log.faults]
        shown = [f"{self._shown(log)}: {fault}" for log, fault in faults if fault]
        if self.attempt:
            of_attempt = ([x for x in logs if not x.is_before(restarted)] for logs in kinds)
            shown += filter(None, map(self._begun_again, of_attempt))
        return RunMetrics(
            source=first_few(places, NAMED),
            series=series,
            final=finals | self.results,
            hyperparameters={k: v for log in used for k, v in log.hyperparameters.items()},
            faults=(*self.faults, *shown),
        )

    def _shown(self, log: MetricLog) -> str:
        """The file or folder of a log, from the run's folder on; its place in a workspace."""
        path, run = log.path, self.run.path
        return str(path.relative_to(run)) if path.is_relative_to(run) else log.place

    def _begun_again(self, logs: Sequence[MetricLog]) -> str:
        """What to note where a log goes back in the steps of those that it continues."""
        found: dict[tuple[str, str], tuple[MetricLog, Points]] = {}
        for log in logs:
            place = lasting_place(place_on_any_machine(log))
            for name, points in log.points.items():
                before, known = found.get((place, name), (log, {}))
                last = max(known, default=-inf)
                if any(
                    step <= last and not same_number(value, known.get(step, inf))
                    for step, value in points.items()
                ):
                    return (
                        f"{name} begins again in another file or folder that differs in its time "
                        f"or number ({self._shown(before)}, {self._shown(log)}) in one attempt of "
                        "the job: the last value counts. If they are several trainings, name their "
                        "folders by more than a time"
                    )
                found[place, name] = log, known | points
        return ""

    def _by_kind(self) -> list[list[MetricLog]]:
        """The logs by their kind, the most explicit kind first; metrics.jsonl stands for itself."""
        rows, *others = ([log for log in self.logs.values() if log.kind is kind] for kind in Kind)
        if any(log.points for log in rows):
            return [rows, [log for log in self.logs.values() if log.kind is Kind.OUTPUT]]
        return [rows, *others]


def rows_without_steps(log: MetricLog) -> str:
    """What to note of a table whose rows are not read."""
    names = sorted(without_steps(log.counted))
    if not names:
        return ""
    return (
        f"several rows without a step state {first_few(names, NAMED)}, which "
        f"{'is' if len(names) == 1 else 'are'} not read: write a column step"
    )


def comes_again(log: MetricLog) -> str:
    """What to note where rows of one attempt go back in their steps, or state one twice."""
    found = log.again.items()
    told = {k: v for k, v in found if k in log.points and not VARYING.fullmatch(k)}
    again = {k: v for k, v in told.items() if not is_time(k)}
    if not again:
        return ""
    return (
        f"the steps of {first_few(sorted(again), NAMED)} go back to {next(iter(again.values())):g} "
        "or come twice, and the last value of each counts. If they are of several things or "
        "trainings, write a file for each"
    )


def logs_so_far(run: RunDir) -> dict[str, tuple[int, str]]:
    """Tables and JSON lines in a run: `KnownLogs.before` of its next attempt."""
    logs = [path for path in find_files(run.path) if kind_of(path) in ("table", "rows")]
    own = (run.metrics_file, run.log_file)
    others = [path for path in logs if path not in own and path.stat().st_size]
    return {
        str(path.relative_to(run.path)): (path.stat().st_size, digest_file(path)) for path in others
    }


def logs_of(run: RunDir, patterns: Sequence[str], recorded: Mapping[str, Any]) -> RunLogs:
    """The logs of a run, with what they had before its job was started last.

    Args:
        recorded: the run's provenance.json, which says so; what has not its form is unknown.
    """
    starts, attempt = recorded.get("log_bytes_before"), recorded.get("attempt")
    processes, nodes = recorded.get("processes", 1), recorded.get("nodes", 1)
    is_known = isinstance(processes, int) and isinstance(nodes, int) and nodes > 0
    sizes = starts.items() if isinstance(starts, dict) else ()
    return RunLogs(
        run,
        patterns,
        {name: size for name, size in sizes if isinstance(size, int)},
        KnownLogs(*(valid(recorded.get(name)) for name in ("logs_before", "logs_committed"))),
        attempt if isinstance(attempt, int) else 0,
        max(1, processes // nodes) if is_known else 1,
    )


def valid(found: Any) -> dict[str, tuple[int, str]]:
    """The rows of a fact that have their form."""
    rows = found.items() if isinstance(found, dict) else ()
    pairs = {name: row for name, row in rows if isinstance(row, list) and len(row) == 2}
    return {n: (row[0], row[1]) for n, row in pairs.items() if [*map(type, row)] == [int, str]}
