"""Notifications: one message when a launch, a queue or a search ends.

A notification never decides how a command ends: one that fails is a warning.
"""

import base64
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from zoerefine import __version__
from zoerefine.base.errors import INTERRUPTED, UserError
from zoerefine.base.messages import one_line, warn
from zoerefine.base.progress import duration
from zoerefine.base.secrets import HIDDEN, hide_secrets, register_secret, without_secrets


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


# Where notifications go: a command's standard input, or a URL.
#
# A URL often holds a token in its path, so messages name its host alone, and no file gets the
# URL.

ANSWER_S = 10.0  # for a server to answer
COMMAND_S = 60.0  # for a command to end
VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")


def parse_receiver(text: str) -> "Receiver":
    """A URL, a command, or the variable of the environment that has one of them.

    Raises `UserError` where it can be neither; the text is not repeated, since it may hold secrets.
    """
    text = text.strip()
    if found := VARIABLE.fullmatch(text):
        name = found[1] or found[2]
        text = os.environ.get(name, "").strip()
        if not text:
            raise UserError(f"--notify ${name}: the variable is not set")
    if re.match(r"[A-Za-z][\w+.-]*://", text):
        return parse_url(text)
    return parse_command(text)


def parse_url(text: str) -> "UrlReceiver":
    """Raises `UserError` for what is no http or https URL."""
    register_secret(text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise UserError("--notify: the URL has a wrong host or port") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise UserError(f"--notify takes URLs of http and https, not of {parts.scheme}")
    if not host or not text.isascii() or not text.isprintable() or " " in text:
        raise UserError("--notify: the URL has no host, or characters that a URL may not have")
    where = f"[{host}]" if ":" in host else host
    place = f"{parts.scheme.lower()}://{where}" + (f":{port}" if port else "")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    register_secret(password)
    return UrlReceiver(place, path, f"{user}:{password}" if user or password else "")


def parse_command(text: str) -> "CommandReceiver":
    """Raises `UserError` for a command that cannot be split into words, or whose program lacks."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"--notify: the command has wrong quotes ({error})") from None
    if not words or not shutil.which(words[0]):
        program = words[0] if words else "''"
        raise UserError(f"--notify: there is no program {program}; give a command or a URL")
    return CommandReceiver(tuple(words))


@dataclass(frozen=True)
class UrlReceiver:
    """Gets one POST with JSON. Messages call it `name`, and `send` returns why it failed, or "".

    Attributes:
        place: scheme, host and port.
        path: with the query; it may hold a token.
        login: `user:password` of the URL, or empty.
    """

    place: str
    path: str = field(repr=False)
    login: str = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.place}/{HIDDEN}"

    def send(self, body: bytes) -> str:
        faults: list[str] = []
        # A server that sends a byte now and then would keep the time limit of a socket from ending.
        thread = threading.Thread(target=lambda: faults.append(self._post(body)), daemon=True)
        thread.start()
        thread.join(ANSWER_S)
        return faults[0] if faults else f"no answer within {ANSWER_S:g} s"

    def _post(self, body: bytes) -> str:
        # Late: they load TLS and more, a seventh of what a launch loads.
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class NoRedirects(HTTPRedirectHandler):
            """The message stays with the server that was named: its answer may lead anywhere."""

            def redirect_request(self, *_: object) -> None:
                return None

        headers = {"Content-Type": "application/json", "User-Agent": f"zoerefine/{__version__}"}
        if self.login:
            token = base64.b64encode(self.login.encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        request = Request(self.place + self.path, body, headers, method="POST")
        try:
            with build_opener(NoRedirects).open(request, timeout=ANSWER_S):
                return ""
        except HTTPError as error:
            error.close()
            is_elsewhere = 300 <= error.code < 400
            return f"HTTP status {error.code}" + (", which is not followed" if is_elsewhere else "")
        except URLError as error:
            return getattr(error.reason, "strerror", None) or type(error.reason).__name__
        except (HTTPException, OSError, ValueError) as error:
            return getattr(error, "strerror", None) or type(error).__name__


@dataclass(frozen=True)
class CommandReceiver:
    """Gets the JSON on its standard input. It is started without a shell."""

    words: Sequence[str]

    @property
    def name(self) -> str:
        return self.words[0]

    def send(self, body: bytes) -> str:
        try:
            process = subprocess.Popen(
                self.words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us
            )
        except OSError as error:
            return error.strerror or type(error).__name__
        try:
            process.communicate(body, COMMAND_S)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return f"killed after {COMMAND_S:g} s"
        code = process.returncode
        return f"exit code {code}" if code else ""


Receiver = UrlReceiver | CommandReceiver
