"""Progress bars with rates and time left, and the lines a command says beside them."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

Item = TypeVar("Item")


def bar(total: int, label: str, unit: str, initial: int = 0) -> "tqdm[Any]":
    """A bar on stderr. Where stderr is no terminal it draws every few seconds, not tenths."""
    from tqdm import tqdm  # a launch draws none, and should not wait for it

    return tqdm(
        total=total,
        initial=initial,
        desc=label,
        unit=unit,
        leave=True,
        disable=silent(),
        dynamic_ncols=True,
        mininterval=0.1 if sys.stderr.isatty() else 5.0,
    )


def track(items: Iterable[Item], total: int, label: str, unit: str) -> Iterator[Item]:
    """Yield `items` while a bar counts them."""
    with bar(total, label, unit) as progress:
        for item in items:
            yield item
            progress.update()


def silent() -> bool:
    """Whether another process of this job speaks for this one, too."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK") != "0"


def say(line: str) -> None:
    """Print a line for the user without tearing a bar that is being drawn."""
    if silent():
        return
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
    else:
        print(line, file=sys.stderr)
