"""Notifications: one message when a launch, a queue or a search ends.

A notification never decides how a command ends: one that fails is a warning.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoerefine.errors import UserError
from zoerefine.launch.redaction import hide_secrets, without_secrets
from zoerefine.progress import duration, warn
from zoerefine.visible_text import one_line

if TYPE_CHECKING:
    from zoerefine.launch.notification_receivers import Receiver

INTERRUPTED = 130  # exit code after Ctrl-C
USER_ERROR = 2  # exit code of a `UserError`


@dataclass
class Ending:
    """How a launch, a queue or a search ended; whoever runs it fills this in.

    Attributes:
        run: its run directory, of a search the study's, which may not exist yet; empty for a queue.
        code: the exit code of our command.
        message: why it failed, or what it found.
    """

    run: Path | None = None
    code: int = 0
    message: str = ""

    @property
    def state(self) -> str:
        """`finished`, `interrupted` or `failed`."""
        return {0: "finished", INTERRUPTED: "interrupted"}.get(self.code, "failed")


@contextmanager
def notifying(text: str, what: str) -> Iterator[Ending]:
    """Send a notification when the block has ended, in whatever way.

    Args:
        text: of --notify; empty: none is sent.
        what: `launch`, `queue` or `search`.

    Raises `UserError` for a text that is neither a command nor a URL, before the block begins.
    """
    receiver = None
    if text:
        from zoerefine.launch.notification_receivers import parse_receiver  # takes 0.1 s to load

        receiver = parse_receiver(text)
    ending, started_s = Ending(), time.monotonic()
    try:
        yield ending
    except UserError as error:
        ending.code, ending.message = USER_ERROR, str(error)
        raise
    except KeyboardInterrupt as error:
        ending.code, ending.message = INTERRUPTED, str(error)
        raise
    except Exception as error:
        ending.code, ending.message = 1, f"{type(error).__name__}: {error}"
        raise
    finally:
        if receiver is not None:
            notify(receiver, message_of(what, ending, time.monotonic() - started_s))


def notify(receiver: "Receiver", message: dict[str, Any]) -> None:
    """Send a message; where that fails, print one warning."""
    body = json.dumps(without_secrets(message)).encode()
    try:
        fault = receiver.send(body)
    except Exception as error:  # whatever it is, our command ends as it would have
        fault = type(error).__name__
    if fault:
        warn(f"--notify {receiver.name}: {one_line(hide_secrets(fault))}")


def message_of(what: str, ending: Ending, seconds: float) -> dict[str, Any]:
    """What is sent, as JSON. `text` is a sentence for chat services."""
    host, run = socket.gethostname(), str(ending.run) if ending.run else ""
    text = f"zoerefine: {what} {ending.state} on {host} after {duration(seconds)}"
    text += "".join(f", {part}" for part in (run, one_line(ending.message)) if part)
    return {
        "what": what,
        "state": ending.state,
        "code": ending.code,
        "run": run,
        "message": ending.message,
        "seconds": round(seconds, 3),
        "host": host,
        "text": text,
    }
