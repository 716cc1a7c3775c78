"""What a run was and what its repetition gives: results, metrics and files, value by value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from zoerefine.errors import UserError
from zoerefine.launch import provenance
from zoerefine.launch.changes import shortened_list
from zoerefine.launch.result_files import (
    is_time,
    left_digests,
    result_numbers,
    weight_digests,
)
from zoerefine.run_dir import RunDir
from zoerefine.run_metrics import read_metrics

TOLERANCE = 0.02  # relative, between different machines or versions
SAME, DIFFERS, MISMATCH = "same", "differs", "MISMATCH"


@dataclass(frozen=True)
class Comparison:
    """A recorded value and the same value now.

    Attributes:
        verdict: `same`; `differs`, which can change results a little; or `MISMATCH`: this is not
            the recorded job, or not its result.
    """

    what: str
    recorded: str
    now: str
    verdict: str


def compare(what: str, recorded: str, now: str, otherwise: str) -> Comparison:
    """Compare two texts; `otherwise` is the verdict where they differ."""
    return Comparison(what, recorded, now, SAME if recorded == now else otherwise)


def compare_results(
    first: RunDir, again: RunDir, tolerance: float, patterns: Sequence[str] = ()
) -> list[Comparison]:
    """Compare weights and chosen left files by their digests, and every metric.

    Args:
        patterns: which left files to compare, e.g. `*.pt`.
        tolerance: the relative difference that metrics may have, on another machine or with other
            versions. With a tolerance weights may differ. 0: everything must be bit-exact.
    """
    comparisons = []
    before = weight_digests(first) | matching_files(first, patterns)
    after = weight_digests(again) | left_digests(again)
    for name, digest in before.items():
        otherwise = DIFFERS if tolerance else MISMATCH
        comparisons.append(compare(name, digest, after.get(name, "absent"), otherwise))
    recorded, repeated = compared_numbers(first), compared_numbers(again)
    for name, value in recorded.items():
        comparisons.append(compare_numbers(name, value, repeated.get(name), tolerance))
    return comparisons or compare_files(first, again)


def compared_numbers(run: RunDir) -> dict[str, float]:
    """Every number that a repetition must give again.

    Of another repository's script these are its metrics, at every step.
    """
    numbers = result_numbers(run)
    recorded = run.read_json(run.provenance_file)
    if provenance.is_own_training(recorded):
        return numbers
    metrics = read_metrics(run)
    numbers |= {name: value for name, value in metrics.final.items() if not is_time(name)}
    for name, series in metrics.series.items():
        if not is_time(name):
            points = zip(series.steps, series.values, strict=True)
            numbers |= {f"{name} at step {step:g}": value for step, value in points}
    return numbers


def compare_numbers(name: str, recorded: float, now: float | None, tolerance: float) -> Comparison:
    """Compare a number with that of the repetition; None: it is absent there."""
    if now is None:
        return Comparison(name, f"{recorded:.8g}", "absent", MISMATCH)
    if recorded == now or (math.isnan(recorded) and math.isnan(now)):
        return Comparison(name, f"{recorded:.8g}", f"{now:.8g}", SAME)
    close = math.isclose(recorded, now, rel_tol=tolerance, abs_tol=1e-9 if tolerance else 0.0)
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
            known = shortened_list(list(files)) or "none"
            raise UserError(f"--compare {pattern} matches no left file; there are: {known}")
        found |= matched
    return found


def compare_files(first: RunDir, again: RunDir) -> list[Comparison]:
    """Compare result files by digest, for a job without weights and metrics."""
    recorded = first.read_json(first.provenance_file).get("outputs", {})
    now = again.read_json(again.provenance_file).get("outputs", {})
    return [
        compare(name, digest, now.get(name, "absent"), MISMATCH)
        for name, digest in recorded.items()
    ]
