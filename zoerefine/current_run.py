"""Logs the metrics of a launched job to its run folder. Outside a launch nothing is written.

    from zoerefine import current_run

    current_run.log(step, loss=0.31, val_acc=0.9)
    current_run.summary(best_val_acc=0.92)
    folder = current_run.checkpoint_folder()  # kept between attempts; None outside a launch

This file needs only the standard library. It can be copied into any repository.
"""

import json
import os
from pathlib import Path
from typing import Any

RUN_FOLDER = "ZOEREFINE_RUN_FOLDER"  # set by `zoerefine run` and `zoerefine search`

_started: set[Path] = set()  # the files that this process has written to


def log(step: float, **metrics: Any) -> None:
    """Append the metrics of one step to metrics.jsonl.

    A step may be logged several times; the last value of a metric counts. A value may be NaN.
    In a torchrun job only rank 0 writes.

    Raises:
        TypeError: the step or a value is not a number.
    """
    row = {"step": _number("step", step)}
    row |= {name: _number(name, value) for name, value in metrics.items()}
    folder = _folder()
    if folder is not None:
        _append(folder / "metrics.jsonl", json.dumps(row))


def summary(**metrics: Any) -> None:
    """Set final metrics in results.json; those of earlier calls stay.

    Raises:
        TypeError: a value is not a number.
    """
    numbers = {name: _number(name, value) for name, value in metrics.items()}
    folder = _folder()
    if folder is None:
        return
    path = folder / "results.json"
    recorded = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps(recorded | numbers, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def checkpoint_folder() -> Path | None:
    """A folder that stays when the job is started again; None outside a launch."""
    run = os.environ.get(RUN_FOLDER)
    if not run:
        return None
    folder = Path(run) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _folder() -> Path | None:
    """The run folder to write to; None outside a launch, and in all ranks but the first."""
    run = os.environ.get(RUN_FOLDER)
    return Path(run) if run and os.environ.get("RANK", "0") == "0" else None


def _append(path: Path, line: str) -> None:
    """Append a line with one write, so that a kill cuts off at most this line."""
    with open(path, "ab+", buffering=0) as file:
        if path not in _started:
            _started.add(path)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if size and file.read(1) != b"\n":  # an earlier attempt was killed here
                line = f"\n{line}"
        file.write(line.encode() + b"\n")


def _number(name: str, value: Any) -> float:
    """A number, a NumPy scalar or a tensor with one element as an int or float."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"current_run: {name} is {value!r:.60}, not a number") from None
