"""The numbers behind the graph: a row a run, as CSV."""

import csv
from pathlib import Path

from zoerefine.analysis.collect import Collection, differing
from zoerefine.files import replacing
from zoerefine.metrics import NAMES


def write_table(collection: Collection, path: Path) -> None:
    """Write runs.csv: what each run was and reached, and what was left out with its reason."""
    keys = differing(collection.runs)
    metrics = [
        (split, which, name)
        for split in ("val", "test")
        for which in ("pseudo", "refined")
        for name in NAMES
    ]
    header = [
        "run", "state", "pruned", "group", "seed", "commit", *keys,
        *("/".join(metric) for metric in metrics), "latency_ms", "note",
    ]  # fmt: skip
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(header)
        for run in collection.runs:
            values = [run.metric(*metric) for metric in metrics]
            rows.writerow(
                [
                    str(run.path),
                    run.state,
                    run.pruned,
                    run.group,
                    run.seed,
                    run.provenance.get("commit", ""),
                    *(run.settings.get(key) for key in keys),
                    *values,
                    run.engine.get("latency_ms"),
                    "",
                ]
            )
        for folder, reason in collection.left_out.items():
            rows.writerow([folder, "unreadable", *[""] * (len(header) - 3), reason])
