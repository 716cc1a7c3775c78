"""A real object store on this machine: moto's server in a process of its own, behind a gate.

with object_store() as store:
    store.address               for AWS_ENDPOINT_URL
    store.hold("PUT", after=2)  further requests of that kind to objects wait
    store.release()             those that wait are dropped, later ones pass
    store.requests              (method, path) of every request that passed
"""

import http.client
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "expect", "keep-alive"}


class Gate(ThreadingHTTPServer):
    """Passes requests on to the store, and holds those that a test names."""

    daemon_threads = True

    def __init__(self, store_port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.store_port = store_port
        self.requests = []
        self.opened = threading.Event()
        self.lock = threading.Lock()
        self.release()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def hold(self, method, after):
        """Let this many more requests of a method for objects pass, and hold the next ones."""
        self.opened.clear()
        self.held_method, self.passes = method, after

    def release(self):
        """Drop what is held, and let all later requests pass."""
        self.held_method, self.passes = "", 0
        self.opened.set()

    def may_pass(self, method, path):
        """Wait where the request is held; returns whether it is then passed on."""
        with self.lock:
            if method != self.held_method or "/objects/" not in path or self.passes > 0:
                self.passes -= method == self.held_method and "/objects/" in path
                self.requests.append((method, path))
                return True
        self.opened.wait()
        return False

    def count(self, method):
        """How many requests of a method for objects have passed."""
        return sum(one == method and "/objects/" in path for one, path in self.requests)

    def handle_error(self, request, client_address):
        """A client that was killed is no fault."""


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer's body waits 40 ms for its head's receipt

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.server.may_pass(self.command, self.path):
            self.close_connection = True
            return
        store = http.client.HTTPConnection("127.0.0.1", self.server.store_port)
        headers = {key: self.headers[key] for key in self.headers if key.lower() != "expect"}
        store.request(self.command, self.path, body, headers)
        answer = store.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in HOP_HEADERS:
                self.send_header(key, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", length or 0)
        self.end_headers()
        self.wfile.write(content)
        store.close()

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on

    def log_message(self, *_):
        """Nothing is printed."""


@contextmanager
def object_store():
    """Start the store and its gate, and stop them at the end."""
    command = [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    lines = iter(server.stderr.readline, "")
    port = next(int(found[1]) for line in lines if (found := re.search(r"http://\S+:(\d+)", line)))
    threading.Thread(target=server.stderr.read, daemon=True).start()
    gate = Gate(port)
    threading.Thread(target=gate.serve_forever, daemon=True).start()
    try:
        yield gate
    finally:
        gate.shutdown()
        gate.server_close()
        server.kill()
        server.wait()
