"""How many seeds a comparison needs, where those at hand cannot reach the level of the tests."""

from collections.abc import Sequence

from zoerefine.analysis.comparisons import Difference
from zoerefine.analysis.groups import RunGroup
from zoerefine.analysis.seed_statistics import ALPHA, ENOUGH_RUNS, seeds_needed, smallest_p


def seeds_note(groups: Sequence[RunGroup], differences: Sequence[Difference]) -> str:
    """A sentence with the seeds that are needed; empty where a difference can be significant.

    Holm's correction multiplies the smallest p value by the number of tests. Where no pair of
    groups can then reach ALPHA, no data could make a difference significant.
    """
    seeds = {group.label: len(group.scores) for group in groups}
    pairs = [(seeds[one.first], seeds[one.second]) for one in differences]
    tested = [pair for pair in pairs if min(pair) >= ENOUGH_RUNS]
    if not pairs or any(smallest_p(n, m) * len(tested) <= ALPHA for n, m in tested):
        return ""
    comparisons = f"{len(pairs)} comparisons" if len(pairs) > 1 else "one comparison"
    return (
        f"With these seeds no difference can be significant, however large it is: p_adjusted <= "
        f"{ALPHA} needs {seeds_needed(len(pairs))} seeds per group for {comparisons}."
    )
