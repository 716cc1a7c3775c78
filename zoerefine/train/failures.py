"""What torch says when a training cannot go on, in words that say what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from zoerefine.errors import UserError

NO_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
NOT_REPEATABLE = re.compile(r"(\S+) does not have a deterministic implementation")


@contextmanager
def explained_failures() -> Iterator[None]:
    """Turns torch's errors of a full memory, or of an operation whose bits vary, into one line."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if found := NOT_REPEATABLE.search(str(error)):
            raise UserError(
                f"{found[1]} cannot repeat its bits on this device: choose another operation, or "
                "give up exact repetition with TRAIN.DETERMINISTIC false"
            ) from error
        if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
            raise UserError(
                "out of memory: lower LOADER.BATCH, or raise TRAIN.ACCUMULATE, which splits a batch"
            ) from error
        raise
