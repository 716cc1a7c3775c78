"""A repository over HTTP for one user, and servers that want to see its password."""

import base64
import hashlib
import json
import os
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

# Of this process alone, since a test looks for it in the command lines of all processes.
WORD = f"w0rd{os.getpid()}"
USER, PASSWORD = "robot", f"p@ss {WORD}/9c1f"
LOGIN = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
LARGE = b"large" * 1000


class Handler(BaseHTTPRequestHandler):
    """Answers nobody without a password."""

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        given = self.headers.get("Authorization")
        self.server.logins.append(given)
        if given is None:
            self.reply(401, {"WWW-Authenticate": 'Basic realm="git"'})
        else:
            self.answer(body)

    do_POST = do_GET

    def answer(self, body):
        self.reply(401, {"WWW-Authenticate": 'Basic realm="git"'})

    def reply(self, status, headers, data=b""):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class RepositoryHandler(Handler):
    """Serves the repositories of a folder to one user, and one file in Git LFS.

    Attributes of the server: `folder`; `redirect`, a prefix of the path and where it moved;
    `seen`, the command lines of all processes.
    """

    def answer(self, body):
        if self.headers["Authorization"] != LOGIN:
            return Handler.answer(self, body)
        listing = ["ps", "-eo", "args"]
        self.server.seen += subprocess.run(listing, capture_output=True, text=True).stdout
        what, target = self.server.redirect
        if target and what in self.path:
            return self.reply(self.server.status, {"Location": target + self.path})
        if self.path.endswith("/objects/batch"):
            return self.batch(json.loads(body))
        if self.path.startswith("/object/"):
            return self.reply(200, {}, LARGE)
        return self.run_git(body)

    def batch(self, asked):
        place = self.server.objects_at or f"http://127.0.0.1:{self.server.server_address[1]}"
        objects = [
            one | {"actions": {"download": {"href": f"{place}/object/{one['oid']}"}}}
            for one in asked["objects"]
        ]
        kind = {"Content-Type": "application/vnd.git-lfs+json"}
        answer = json.dumps({"transfer": "basic", "objects": objects}).encode()
        return self.reply(200, kind, answer)

    def run_git(self, body):
        path, _, query = self.path.partition("?")
        environment = os.environ | {
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": USER,
        }
        command = ["git", "http-backend"]
        done = subprocess.run(command, input=body, env=environment, capture_output=True)
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        return self.reply(
            200, dict(line.split(": ", 1) for line in head.decode().splitlines()), data
        )


@contextmanager
def serving(handler, folder=None):
    """Run a server; yields it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        http.logins, http.seen, http.folder = [], "", folder
        http.redirect, http.status, http.objects_at = ("", ""), 302, ""
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield http
        http.shutdown()


def url_of(http, path="", login=False):
    """The server's URL, with the user's credentials if asked."""
    credentials = f"{USER}:{quote(PASSWORD, safe='')}@" if login else ""
    return f"http://{credentials}127.0.0.1:{http.server_address[1]}{path}"


def pointer(data=LARGE):
    """The Git LFS pointer of a file."""
    digest = hashlib.sha256(data).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(data)}\n"
