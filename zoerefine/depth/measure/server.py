"""The page on which a room is measured, as a web application for `base/guarded_server.py`."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from zoerefine.base.errors import UserError
from zoerefine.depth.measure.session import Session

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

FILES = {"/": "text/html", "/measure.js": "text/javascript", "/measure.css": "text/css"}
FOLDER = Path(__file__).with_name("page")
LONGEST_BODY = 2**14
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
COLUMNS = "frame", "x", "y", "metres", "along"


def page(session: Session) -> "WSGIApplication":

    def application(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        request.max_content_length = LONGEST_BODY
        try:
            response = answer(session, request)
        except UserError as fault:
            response = as_json({"fault": str(fault)}, 400)
        except HTTPException as fault:  # a missing argument, too long a body
            response = as_json({"fault": fault.description}, fault.code or 400)
        response.headers.extend(HEADERS)
        return response(environ, start_response)

    return application


def answer(session: Session, request: Request) -> Response:
    """The answer to a request. Raises `UserError` for what the user has to correct."""
    words, path = request.args, request.path
    if request.method == "GET" and path in FILES:
        name = path.strip("/") or "page.html"
        return Response((FOLDER / name).read_bytes(), content_type=f"{FILES[path]}; charset=utf-8")
    if request.method == "GET" and path == "/frame.jpg":
        return Response(session.recording.shown(words["name"]).jpeg, content_type="image/jpeg")
    if request.method == "GET" and path == "/pixel":
        x, y = (whole_number(words[name], name) for name in ("x", "y"))
        return as_json(session.pixel(words["name"], x, y))
    if request.method == "GET" and path == "/state":
        return as_json(session.state())
    changes: dict[str, Callable[[dict[str, Any]], None]] = {
        "/add": lambda values: session.add({
            name: str(values[name]) for name in COLUMNS if name in values
        }),
        "/remove": lambda values: session.remove(
            whole_number(values.get("number"), "number"), values
        ),
    }  # fmt: skip
    if request.method == "POST" and path in changes:
        values = body_of(request)
        if values.get("session") != session.id:
            raise UserError("this page was opened for another command: load it again")
        changes[path](values)
        return as_json(session.state())
    return as_json({"fault": f"no {request.method} of {path}"}, 404)


def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Raises `UserError` for anything else."""
    if request.mimetype != "application/json":
        raise UserError("a change is a JSON object")
    try:
        found = json.loads(request.get_data())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UserError("a change is a JSON object")
    return found


def whole_number(value: Any, name: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name} must be a whole number, got {str(value)[:40]!r}") from None


def as_json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, content_type="application/json")
