"""Progress bars with rate and remaining time, and messages printed between them."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

Item = TypeVar("Item")


def bar(total: int, label: str, unit: str, initial: int = 0) -> "tqdm[Any]":
    """A progress bar on stderr. Without a terminal it is drawn less often."""
    from tqdm import tqdm  # imported late: a launch draws no bar

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
    """Yield `items` and count them with a progress bar."""
    with bar(total, label, unit) as progress:
        for item in items:
            yield item
            progress.update()


def silent() -> bool:
    """Whether this is a torchrun process other than the first, which prints for all."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK") != "0"


def say(line: str) -> None:
    """Print a message on stderr, above a progress bar if one is drawn."""
    if silent():
        return
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
    else:
        print(line, file=sys.stderr)
