"""A web application on this machine that answers only a browser with the printed address.

A web page of another site can make the user's browser send requests to this machine (cross-site
requests, DNS rebinding). So a request must name this machine in its Host header, must come from a
page of the same address where it names its origin, and must carry the token of the printed
address: in the address once, afterwards in a cookie.
"""

import hmac
import http.client
import ipaddress
import secrets
import socket
from collections.abc import Iterable
from functools import cache
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from werkzeug.serving import ThreadedWSGIServer

from zoerefine.base.errors import UserError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

TOKEN = "token"
REFUSED = "403 Forbidden"
OPEN_PRINTED = "open the address that the command printed: it holds a token"
ANSWER_TIMEOUT_S = 60


def new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def with_token(url: str, token: str) -> str:
    """An address to print."""
    return f"{url}?{urlencode({TOKEN: token})}"


class Guarded:
    """A WSGI application that answers only requests of whom the printed address was given to.

    Args:
        app: the application.
        token: of the printed address.
        port: that is served; it tells apart the cookies of several dashboards of a machine.
    """

    def __init__(self, app: "WSGIApplication", token: str, port: int) -> None:
        self.app, self.token = app, token
        self.cookie = f"zoerefine-{port}"

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        if fault := foreign_request(environ):
            return refuse(start_response, fault)
        query = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        if any(self._is_token(value) for name, value in query if name == TOKEN):
            return self._admit(environ, start_response, [one for one in query if one[0] != TOKEN])
        if self._has_cookie(environ):
            return self.app(environ, start_response)
        return refuse(start_response, OPEN_PRINTED)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    def _has_cookie(self, environ: "WSGIEnvironment") -> bool:
        try:
            cookies = SimpleCookie(environ.get("HTTP_COOKIE", ""))
        except CookieError:
            return False
        return self.cookie in cookies and self._is_token(cookies[self.cookie].value)

    def _admit(
        self,
        environ: "WSGIEnvironment",
        start_response: "StartResponse",
        query: list[tuple[str, str]],
    ) -> Iterable[bytes]:
        """Answer a request with the token; a page is sent to its address without the token."""
        cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        words = urlencode(query)
        if "text/html" in environ.get("HTTP_ACCEPT", ""):
            # Only the path: `//host` would lead to another host.
            path = "/" + environ.get("PATH_INFO", "").lstrip("/")
            place = quoted(path) + (f"?{words}" if words else "")
            start_response("303 See Other", [("Location", place), ("Set-Cookie", cookie)])
            return [b""]
        return self.app(environ | {"QUERY_STRING": words}, start_response)


def quoted(path: str) -> str:
    """A path of a request as it stands in an address: WSGI has decoded it."""
    return quote(path.encode("latin-1"))


def foreign_request(environ: "WSGIEnvironment") -> str:
    """Why a request may come from a page of another site; empty where it does not."""
    host = environ.get("HTTP_HOST", "")
    if not is_own_name(host):
        return f"the Host header {host[:80]!r} is not a name of this machine"
    origin = environ.get("HTTP_ORIGIN")
    if origin is not None and origin != f"{environ['wsgi.url_scheme']}://{host}":
        return f"the request comes from a page of {origin[:80]!r}"
    return ""


def is_own_name(host: str) -> bool:
    """Whether a Host header names this machine: an IP address, localhost or its own name.

    DNS rebinding needs a name that the attacker's server resolves, so IP addresses are safe. The
    port is not compared, since a tunnel may use another one.
    """
    try:
        parts = urlsplit(f"//{host}")
        name = (parts.hostname or "").rstrip(".")
        _ = parts.port  # raises for a wrong one
    except ValueError:
        return False
    if parts.netloc != host or "@" in host:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name in machine_names()
    return True


@cache
def machine_names() -> set[str]:
    """This machine's own names."""
    return {socket.gethostname().lower(), socket.getfqdn().lower()}


def refuse(start_response: "StartResponse", why: str) -> Iterable[bytes]:
    """Answer with a refusal as plain text."""
    start_response(REFUSED, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"refused: {why}\n".encode()]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `UserError` where the address is in use or not allowed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen on {host} port {port}: {reason}; --port N uses another"
        ) from None


class Server(ThreadedWSGIServer):
    """A guarded web application on a socket that already listens."""

    def __init__(self, app: "WSGIApplication", listening: socket.socket, token: str) -> None:
        host, port = listening.getsockname()[:2]
        super().__init__(host, port, Guarded(app, token, port), fd=listening.fileno())

    def get_url(self) -> str:
        """Its address. TensorBoard requires a method of this name."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"


def wait_for_answer(listening: socket.socket) -> None:
    """Wait until the server of a socket has answered a request."""
    host, port = listening.getsockname()[:2]
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    connection.request("GET", "/")
    connection.getresponse()
    connection.close()
