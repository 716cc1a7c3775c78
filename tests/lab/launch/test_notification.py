"""--notify: one message when all has ended, which never changes how a command ends."""

import base64
import json
import os
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.processes import run_program
from zoerefine.base.errors import UserError
from zoerefine.commands import run as run_command
from zoerefine.commands.options import notifying
from zoerefine.lab.launch import notify

TOKEN = "T0kenQ7xw9ZbA4kLmP2sVu8R"


class Handler(BaseHTTPRequestHandler):
    """Keeps each request, and answers as the server's `status` says."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.got.append((self.path, dict(self.headers), body))
        if self.server.slow:
            while not self.server.slow.wait(0.05):  # a byte now and then
                self.wfile.write(b"H")
                self.wfile.flush()
            return
        self.send_response(self.server.status)
        if self.server.elsewhere:
            self.send_header("Location", self.server.elsewhere)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(monkeypatch):
    """Start a server: serve(status) -> server with `url` and `got`, the requests."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers = []

    def start(status=200, elsewhere="", slow=False):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.got, server.status, server.elsewhere = [], status, elsewhere
        server.slow = threading.Event() if slow else None
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        if server.slow:
            server.slow.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def receiver(tmp_path):
    """A command that writes its words and what it gets into a file, and that file."""
    script, file = tmp_path / "receiver.py", tmp_path / "received.json"
    script.write_text(
        "import json, sys\n"
        f"with open({str(file)!r}, 'a') as file:\n"
        "    print(json.dumps([sys.argv[1:], json.load(sys.stdin)]), file=file)\n"
    )
    return f"{sys.executable} {script}", file


def test_a_launch_that_ends_is_one_post(serve, launch):
    server = serve()
    done = launch("--notify", f"{server.url}/done")
    ((path, headers, body),) = server.got
    told = json.loads(body)
    assert path == "/done"
    assert headers["Content-Type"] == "application/json"
    assert (told["what"], told["state"], told["code"]) == ("launch", "finished", 0)
    assert told["run"] == done.stdout.splitlines()[-1]
    assert told["host"] == socket.gethostname()
    assert told["text"].startswith(f"zoerefine: launch finished on {told['host']} after 0:0")
    assert "warning" not in done.stderr


def test_a_queue_in_which_a_job_fails_tells_a_command(receiver, launch, tmp_path):
    command, file = receiver
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    bad.write_text("fail: 1\n")
    good.write_text("fine: 1\n")
    words = f"{command} '$HOME; two words' *"
    launch("--configs", f"{bad},{good}", "--notify", words, code=1)
    ((given, told),) = map(json.loads, file.read_text().splitlines())
    assert given == ["$HOME; two words", "*"]  # no shell
    assert (told["what"], told["state"], told["code"]) == ("queue", "failed", 1)
    assert told["message"] == "1 failed, 1 finished"


def test_ctrl_c_is_an_interruption(receiver, launch, config, tmp_path, wait_until):
    command, file = receiver
    config.write_text("wait: 1\n")
    process = launch("--notify", command, background=True)
    wait_until(lambda: any("waiting" in p.read_text() for p in tmp_path.glob("runs/*/*/log.txt")))
    process.send_signal(signal.SIGINT)
    assert process.wait(180) == 130
    ((_, told),) = map(json.loads, file.read_text().splitlines())
    assert (told["state"], told["code"]) == ("interrupted", 130)


@pytest.mark.parametrize("in_variable", [True, False])
def test_what_a_url_holds_is_in_no_file_and_in_no_message(
    serve, launch, tmp_path, monkeypatch, in_variable
):
    server = serve(status=500)
    place = server.url.replace("://", f"://robot:pass-{TOKEN}@")
    url = f"{place}/hook/{TOKEN}?key={TOKEN}"
    monkeypatch.setenv("NOTIFY_ADDRESS", url)
    done = launch("--notify", "$NOTIFY_ADDRESS" if in_variable else url)
    ((path, headers, body),) = server.got
    assert path == f"/hook/{TOKEN}?key={TOKEN}"
    login = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert login == f"robot:pass-{TOKEN}"
    assert TOKEN.encode() not in body
    lines = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert lines == [f"warning: --notify {server.url}/***: HTTP status 500"]
    for text in (done.stdout, done.stderr):
        assert TOKEN not in text
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert TOKEN.encode() not in file.read_bytes(), file


def test_the_body_holds_no_secret_of_the_environment(receiver, monkeypatch):
    command, file = receiver
    monkeypatch.setenv("DB_PASSWORD", TOKEN)
    with pytest.raises(UserError), notifying(command, "search"):
        raise UserError(f"postgresql://me:other@host/db and {TOKEN} cannot be used")
    assert TOKEN not in file.read_text()
    assert "other" not in file.read_text()


def warning_of(text, capsys):
    """The only warning of a notification."""
    with notifying(text, "launch") as ending:
        ending.code = 0
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_redirect_is_not_followed(serve, capsys):
    other = serve()
    server = serve(status=307, elsewhere=f"{other.url}/stolen")
    expected = "HTTP status 307, which is not followed"
    assert warning_of(server.url, capsys) == f"warning: --notify {server.url}/***: {expected}"
    server.status = 302
    assert "HTTP status 302, which is not followed" in warning_of(server.url, capsys)
    assert not other.got
    assert len(server.got) == 2


def test_a_server_that_never_finishes_is_left_after_the_time_limit(serve, capsys, monkeypatch):
    monkeypatch.setattr(notify, "ANSWER_S", 0.4)
    assert "no answer within 0.4 s" in warning_of(serve(slow=True).url, capsys)


def test_a_server_that_is_not_there_is_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "Connection refused" in warning_of(f"http://127.0.0.1:{port}/{TOKEN}", capsys)


def test_a_command_that_fails_or_hangs_is_one_line(capsys, monkeypatch, wait_until):
    fail = f"{sys.executable} -c 'import sys; sys.stderr.write(\"noise\"); sys.exit(3)'"
    assert warning_of(fail, capsys) == f"warning: --notify {sys.executable}: exit code 3"
    monkeypatch.setattr(notify, "COMMAND_S", 0.5)
    own = f"600.{os.getpid()}"  # seconds that no other process sleeps
    assert warning_of(f"sh -c 'sleep {own} & sleep {own}'", capsys) == (
        "warning: --notify sh: killed after 0.5 s"
    )
    wait_until(lambda: own not in running_commands())  # what it had started was killed, too


def running_commands():
    return run_program(["ps", "-eo", "args"]).stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://host/file", "takes URLs of http and https, not of ftp"),
        ("file:///etc/passwd", "takes URLs of http and https, not of file"),
        ("http://", "the URL has no host"),
        ("http://host:port/", "the URL has a wrong host or port"),
        ("http://host/a\nb", "characters that a URL may not have"),
        ("mail 'me", "the command has wrong quotes"),
        ("no-such-program-here", "there is no program no-such-program-here"),
        ("   ", "there is no program ''"),
        ("$NOTIFY_UNSET", r"\$NOTIFY_UNSET: the variable is not set"),
    ],
)
def test_what_can_be_no_receiver_is_refused_before_anything_is_written(
    repository, config, home, tmp_path, monkeypatch, text, message
):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    words = ["--repo", repository.folder, "--commit", repository.first, "--config", config]
    with pytest.raises(UserError, match=message):
        run_command.main([*map(str, words), "--module", "job.py", "--notify", text])
    assert sorted(tmp_path.rglob("*")) == before


def test_without_the_option_nothing_is_sent(launch, receiver):
    launch()
    assert not Path(receiver[1]).exists()
