"""The results of a run, weights, files and numbers, beside those of its repetition."""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file
from zoerefine.base.messages import first_few
from zoerefine.base.run_dir import NODE_FOLDER, RunDir
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.launch.record.times_and_speeds import has_unit, is_time

TOLERANCE = 0.02  # relative, between different machines or versions
ROUNDING = 1e-9
SAME, DIFFERS, MISMATCH = "same", "differs", "MISMATCH"
SPEED, IGNORED = "speed", "ignored"  # shown, and never counted
AT_STEP = " at step "
RESULT_NAMES = ("config.yaml", "best.yaml", "results.json", "weights.sha256", "best.safetensors")
MAX_BYTES = 256 * 2**20
# Written by the launcher, or different each time.
NOT_RESULTS = re.compile(
    rf"^slurm/|^{NODE_FOLDER.pattern}/|(^|/)\.|(^|/)(provenance\.json|status\.json|log\.txt|environment\.txt|uncommitted\.patch"
    r"|events\.out\..*|input(\.\w+)?|left\.json|included\.json"
    r"|inputs\.json)$"
)


@dataclass(frozen=True)
class Comparison:
    """A recorded value and the same value now.

    Attributes:
        verdict: `same`; `differs`, which can change results a little; or `MISMATCH`: this is not
            the recorded job, or not its result. `speed` and `ignored` do not count.
    """

    what: str
    recorded: str
    now: str
    verdict: str


def compare(what: str, recorded: str, now: str, otherwise: str) -> Comparison:
    """Compare two texts; `otherwise` is the verdict where they differ."""
    return Comparison(what, recorded, now, SAME if recorded == now else otherwise)


def compare_results(
    first: RunDir,
    again: RunDir,
    tolerance: float,
    patterns: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> list[Comparison]:
    """Compare weights and chosen left files by their digests, and every metric.

    Speeds and ignored metrics come last, their final values alone. Where there is nothing else,
    speeds that are the same count.

    Args:
        patterns: which left files to compare, e.g. `*.pt`.
        ignored: names of metrics that do not count, e.g. `charts/*`.
        tolerance: the relative difference that metrics may have, on another machine or with other
            versions. With a tolerance weights may differ. 0: everything must be bit-exact.
    """
    comparisons = []
    before = weight_digests(first) | matching_files(first, patterns)
    after = weight_digests(again) | left_digests(again)
    for name, digest in before.items():
        otherwise = DIFFERS if tolerance else MISMATCH
        comparisons.append(compare(name, digest, digest_at(name, after), otherwise))
    recorded, repeated = compared_numbers(first), compared_numbers(again)
    sizes: dict[str, float] = {}
    for name, value in (repeated | recorded).items():
        metric = metric_of(name)
        sizes[metric] = max(sizes.get(metric, 0.0), abs(value))
    left_out = []
    for name in recorded | repeated:
        size = sizes[metric_of(name)]
        one = compare_numbers(name, recorded.get(name), repeated.get(name), tolerance, size)
        if not any(fnmatch(metric_of(name), pattern) for pattern in ignored):
            comparisons.append(one)
        elif AT_STEP not in name:
            left_out.append(replace(one, verdict=IGNORED))
    comparisons = comparisons or compare_files(first, again)
    speeds, now = speeds_of(first), speeds_of(again)
    verdict = SAME if speeds == now and not comparisons else SPEED
    left_out += [Comparison(k, f"{v:.4g}", f"{now.get(k, math.nan):.4g}", verdict)
                 for k, v in speeds.items()]  # fmt: skip
    return [*comparisons, *left_out]


def metric_of(name: str) -> str:
    """The metric of a compared number."""
    return name.partition(AT_STEP)[0]


def check_ignored(run: RunDir, patterns: Sequence[str]) -> None:
    """Raises `UserError` for a pattern that matches no metric."""
    names = sorted(set(map(metric_of, compared_numbers(run))))
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in names):
            known = first_few(names) or "none"
            raise UserError(f"--ignore {pattern} matches no metric; there are: {known}")


def speeds_of(run: RunDir) -> dict[str, float]:
    """The final values of metrics that are times or speeds."""
    from zoerefine.lab.runs.metrics import read_metrics  # late: it needs regex

    return {name: value for name, value in read_metrics(run).final.items() if is_time(name)}


def have_same_numbers(runs: Sequence[RunDir]) -> bool:
    """Whether several runs have metrics, and every one of them at every step is the same."""
    numbers = [repr(sorted(compared_numbers(run).items())) for run in runs]
    return len(runs) > 1 and len(set(numbers)) == 1 and numbers[0] != "[]"


def compared_numbers(run: RunDir, chosen: Collection[str] = ()) -> dict[str, float]:
    """Every number that a repetition must give again.

    Of another repository's script these are its metrics, at every step.

    Args:
        chosen: metrics that count also if they are times.
    """
    from zoerefine.lab.runs.metrics import read_metrics

    numbers = result_numbers(run)
    recorded = run.read_json(run.provenance_file)
    if provenance.is_own_training(recorded):
        return {name: value for name, value in numbers.items() if not has_unit(name)}
    metrics = read_metrics(run)
    numbers |= metrics.final
    counts = {name for name in (*numbers, *metrics.series) if name in chosen or not is_time(name)}
    numbers = {name: value for name, value in numbers.items() if name in counts}
    for name, series in metrics.series.items():
        if name in counts:
            points = zip(series.steps, series.values, strict=True)
            numbers |= {f"{name}{AT_STEP}{step:.15g}": value for step, value in points}
    return numbers


def compare_numbers(
    name: str, recorded: float | None, now: float | None, tolerance: float, size: float
) -> Comparison:
    """Compare a number with that of the repetition; None: it is absent in one of them.

    Args:
        size: the largest value of the metric. A value near 0 may differ by ROUNDING of it.
    """
    from zoerefine.lab.runs.metrics.steps import same_number  # late: it needs regex

    if recorded is None or now is None:
        then, later = ("absent" if one is None else f"{one:.8g}" for one in (recorded, now))
        return Comparison(name, then, later, MISMATCH)
    if same_number(recorded, now):
        return Comparison(name, f"{recorded:.8g}", f"{now:.8g}", SAME)
    rounding = ROUNDING * (size or 1.0) if tolerance else 0.0
    close = math.isclose(recorded, now, rel_tol=tolerance, abs_tol=rounding)
    shown = f"{now:.8g} ({now - recorded:+.2g})"
    return Comparison(name, f"{recorded:.8g}", shown, DIFFERS if close else MISMATCH)


def matching_files(run: RunDir, patterns: Sequence[str]) -> dict[str, str]:
    """The digests of the left files that match a pattern.

    Raises `UserError` where a pattern matches none.
    """
    files = left_digests(run)
    found: dict[str, str] = {}
    for pattern in patterns:
        matched = {name: digest for name, digest in files.items() if fnmatch(name, pattern)}
        if not matched:
            known = first_few(list(files)) or "none"
            raise UserError(f"--compare {pattern} matches no left file; there are: {known}")
        found |= matched
    return found


def compare_files(first: RunDir, again: RunDir) -> list[Comparison]:
    """Compare result files by digest, for a job without weights and metrics.

    Its metrics file holds times at most, which never decide.
    """
    recorded = first.read_json(first.provenance_file).get("outputs", {})
    now = again.read_json(again.provenance_file).get("outputs", {})
    return [
        compare(name, digest, digest_at(name, now), MISMATCH)
        for name, digest in recorded.items()
        if name != first.metrics_file.name
    ]


def digest_at(name: str, digests: Mapping[str, str]) -> str:
    """The digest of a file of this name, or in another folder by date; `absent` without one."""
    from zoerefine.lab.runs.metrics.attempts import lasting_place  # late: it needs regex

    places = {lasting_place(other): digest for other, digest in digests.items()}
    return digests.get(name) or places.get(lasting_place(name), "absent")


def result_digests(run: RunDir) -> dict[str, str]:
    """SHA-256 of the run's result files by name.

    Where a run has none of `RESULT_NAMES`, every file of the job counts as a result.
    """
    names = sorted(_files(run))
    results = [name for name in names if Path(name).name in RESULT_NAMES]
    return {name: digest_file(run.path / name) for name in results or names}


def _files(run: RunDir) -> Iterator[str]:
    for path in run.path.rglob("*"):
        name = path.relative_to(run.path).as_posix()
        if path.is_symlink() or not path.is_file() or NOT_RESULTS.search(name):
            continue
        if path.stat().st_size <= MAX_BYTES:
            yield name


def result_numbers(run: RunDir) -> dict[str, float]:
    """Every number in the run's results.json files by its place."""
    found: dict[str, float] = {}
    for path in _named("results.json", run):
        where = path.relative_to(run.path).parent.as_posix()
        prefix = "" if where == "." else f"{where}: "
        with suppress(ValueError):  # another repository's results.json may not be JSON
            results = json.loads(path.read_text(encoding="utf-8"))
            for name, value in numbers_in(results if isinstance(results, dict) else {}):
                found[prefix + name] = value
    return found


def numbers_in(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a JSON value and their names; those of a list are `name[0]`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_in(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from numbers_in(inner, f"{name}[{place}]")


def weight_digests(run: RunDir) -> dict[str, str]:
    """The digests of trained weights by their place in the run. Raises as `weights_digests`."""
    return {
        path.relative_to(run.path).as_posix(): RunDir(path.parent).weights_digest()
        for path in _named("weights.sha256", run)
    }


def _named(name: str, run: RunDir) -> list[Path]:
    """The files of a name anywhere in a run, without those of other nodes."""
    found = sorted(run.path.rglob(name))
    inside = len(run.path.parts)
    return [path for path in found if not NODE_FOLDER.fullmatch(path.parts[inside])]


def left_digests(run: RunDir) -> dict[str, str]:
    """SHA-256 of the files that the job left in its workspace, by their paths there."""
    path = run.left_file
    if not path.exists():
        return {}
    try:
        return {str(file["path"]): str(file["sha256"]) for file in run.read_json(path)["files"]}
    except (KeyError, TypeError):
        raise UserError(f"{path} is damaged") from None
