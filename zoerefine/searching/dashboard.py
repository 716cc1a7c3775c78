"""The dashboard of a study: optuna-dashboard on its database, TensorBoard on its folder.

Both are served by threads of this process, so nothing keeps running when it ends or is killed
(the program that reads TensorBoard's files ends when its standard input is closed).
"""

import http.client
import logging
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import tensorboard_data_server
from optuna.artifacts import FileSystemArtifactStore
from optuna_dashboard import wsgi
from tensorboard.program import TensorBoard
from werkzeug.serving import ThreadedWSGIServer

from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.searching.existing_study import find_study
from zoerefine.searching.guarded import Guarded, new_token, with_token

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

ANSWER_TIMEOUT_S = 60


def start_dashboard(run: RunDir, storage: str, host: str, port: int) -> tuple[str, str]:
    """Serve a study from threads of this process.

    Args:
        run: the study's run directory.
        storage: the URL of its database; empty: STUDY.STORAGE of the study's config.
        host: the address to serve on.
        port: optuna-dashboard's; TensorBoard takes the next one. 0: any free ones.

    Returns:
        The addresses of the study's page and of TensorBoard with their token, once both answer.

    Raises:
        UserError: there is no such study, its database cannot be read, or a port is in use.
    """
    database, study_id = find_study(run, storage)
    first, second = listen(host, port), listen(host, port + 1 if port else 0)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # no line for every request
    app = wsgi(database, artifact_store=FileSystemArtifactStore(run.path / "artifacts"))
    token = new_token()
    server = Server(app, first, token)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tensorboard = start_tensorboard(run.path, second, token)
    wait_for_answer(first)
    wait_for_answer(second)
    return with_token(f"{server.get_url()}dashboard/studies/{study_id}", token), tensorboard


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `UserError` where the address is in use or not allowed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen on {host} port {port}: {reason}; --port N uses N and N + 1"
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


def start_tensorboard(folder: Path, listening: socket.socket, token: str) -> str:
    """Serve the TensorBoard logs under a folder; returns the address with the token."""
    program = TensorBoard(server_class=lambda app, _flags: Server(app, listening, token))
    # Reading in Python takes half a core for 300 trials. Not every platform has the fast reader.
    fast = "true" if tensorboard_data_server.server_binary() else "false"
    program.configure(logdir=str(folder), load_fast=fast)
    return with_token(program.launch(), token)


def wait_for_answer(listening: socket.socket) -> None:
    """Wait until the server of a socket has answered a request."""
    host, port = listening.getsockname()[:2]
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    connection.request("GET", "/")
    connection.getresponse()
    connection.close()
