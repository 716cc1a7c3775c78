"""Runs every benchmark with --quick, and writes one table of all measures with a goal.

Each figure is appended to results/history.jsonl with its machine. RESULTS.md is made from there:
the newest figure of each measure on each processor, beside the one before, so that a slower version
is seen on the processor where it is slower. A program starts once the machine is idle, because the
programs before it count in the load average; after some minutes it starts anyway, and is marked.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(FOLDER))

from common.machine import BUSY_LOAD, load_average, of_installed_commands  # noqa: E402
from common.report import spread_of, verdict  # noqa: E402

HISTORY, TABLE = FOLDER / "results" / "history.jsonl", FOLDER / "RESULTS.md"
MOST_WAIT_S, LOOK_EVERY_S = 180, 5
HEAD = """# Results

The newest figure of every measure with a goal, by processor. `make bench` writes this file from
`results/history.jsonl`. *busy*: other processes ran, so the figure says nothing about the goal.
"""
COLUMNS = "measure", "goal", "value", "range", "verdict", "before", "load", "cores", "date"


def main() -> None:
    """Run the programs named in argv, or all; the exit status says whether any failed."""
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))
    failed = [name for name in names if not run(name)]
    TABLE.write_text(table(json.loads(line) for line in HISTORY.read_text().splitlines()))
    print(f"\n{TABLE}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(name: str) -> bool:
    """Run a program, and add its figures to the history; whether it succeeded."""
    print(f"== {name}", flush=True)
    wait_until_idle()
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "rows.json"
        words = [sys.executable, str(FOLDER / f"{name}.py"), "--quick", "--json", str(found)]
        env = of_installed_commands(Path(tempfile.gettempdir()) / "zoerefine-bytecode")
        if subprocess.run(words, env=env, check=False).returncode:
            return False
        with open(HISTORY, "a") as file:
            file.writelines(json.dumps(one) + "\n" for one in figures(name, found.read_text()))
    return True


def wait_until_idle() -> None:
    """Wait for a load average that lets figures count, but not for ever."""
    end = time.monotonic() + MOST_WAIT_S
    while load_average() > BUSY_LOAD and time.monotonic() < end:
        time.sleep(LOOK_EVERY_S)


def figures(name: str, text: str) -> Iterator[dict[str, Any]]:
    """The rows of a program's file that have a goal, each with the program and the machine."""
    *rows, last = json.loads(text)
    for row in rows:
        if row.get("goal"):
            yield {"program": name, **row, **last["machine"]}


def table(history: Iterable[dict[str, Any]]) -> str:
    """RESULTS.md: a section a processor, a row a measure."""
    of: dict[str, dict[tuple[str, str], list[dict[str, Any]]]] = {}
    for one in history:
        measures = of.setdefault(one["processor"], {})
        measures.setdefault((one["program"], one["measure"]), []).append(one)
    parts = [HEAD]
    for processor, measures in sorted(of.items()):
        lines = [cells(COLUMNS), cells("---" for _ in COLUMNS)]
        lines += [cells(line_of(found)) for _, found in sorted(measures.items())]
        parts.append(f"## {processor}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def line_of(found: list[dict[str, Any]]) -> list[str]:
    """A measure's cells, from its figures on one processor, the oldest first."""
    now = found[-1]
    before = f"{found[-2]['value']:.4g}" if len(found) > 1 else ""
    load = f"{now['load_before']:g}, {now['load_after']:g}"
    value = f"{now['value']:.4g} {now['unit']}".strip()
    return [
        f"{now['program']}: {now['measure']}", now["goal"], value, spread_of(now), verdict(now),
        before, load, str(now["cores"]), now["date"],
    ]  # fmt: skip


def cells(texts: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    main()
