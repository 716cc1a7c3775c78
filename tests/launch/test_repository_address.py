"""Addresses that are allowed, and credentials, which are in no command line and in no file."""

import base64
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zoerefine.errors import UserError
from zoerefine.launch.mirror import fetch_commit, mirror_folder
from zoerefine.launch.repository_address import parse_address, submodule_address

USER, PASSWORD = "robot", "p@ss w0rd/9c1f"


@pytest.mark.parametrize(
    "text",
    [
        "ext::sh -c touch% /tmp/owned",
        "fd::17",
        "host::path",
        "ftp://host/repo",
        "--upload-pack=touch /tmp/owned",
        "-",
        "",
        "http://host/repo\n--option",
        "ssh://-oProxyCommand=touch/x",
        "-oProxyCommand=touch:x",
        "git@-oProxyCommand=x:y",
        "host:-option",
        "https://host/repo?upload-pack=x",
        "https://user%0a:pass@host/repo",
        "https://host/re po",
        "$(touch /tmp/owned)",
        "; touch /tmp/owned",
    ],
)
def test_hostile_repositories_are_refused(text):
    with pytest.raises(UserError, match="--repo"):
        parse_address(text)


def test_a_repository_is_named_after_the_last_part_of_its_address():
    assert parse_address("https://host/team/tight.git").name == "tight"
    assert parse_address("git@host:team/repo.git").name == "repo"
    assert parse_address("ssh://git@host/team/digit").name == "digit"
    assert parse_address("https://host/team/repo.git/").name == "repo"
    assert parse_address("https://host/..").name == "repository"


@example("me", "000000")
@given(st.text("abcXYZ019-_.~%", min_size=1), st.text("abcXYZ019-_.~", min_size=6))
def test_credentials_are_removed_from_the_url_and_hidden_in_repr(user, password):
    login = f"{quote(user)}:{quote(password)}"
    source = parse_address(f"https://{login}@host.example/team/repo.git")
    assert source.url == "https://host.example/team/repo.git"
    assert password not in repr(source)
    assert source.environment()["ZOEREFINE_GIT_PASSWORD"] == password


def test_submodule_urls_are_relative_to_the_parent_and_never_local_folders(tmp_path):
    parent = parse_address("https://me:secret77@host/team/repo.git")
    inner = submodule_address(parent, "../other.git")
    assert (inner.url, inner.password) == ("https://host/team/other.git", "secret77")
    assert submodule_address(parent, "https://elsewhere/x").password == ""
    ssh = parse_address("git@host:team/repo.git")
    assert submodule_address(ssh, "../other.git").url == "git@host:team/other.git"
    for url in (f"file://{tmp_path}", str(tmp_path), "ext::sh -c id", "--upload-pack=x", "/etc"):
        with pytest.raises(UserError, match="--repo"):
            submodule_address(parent, url)


@pytest.fixture
def server(repository):
    """The repository over HTTP for one user. `seen` collects the command lines of all processes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            login = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            if self.headers.get("Authorization") != login:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            listing = ["ps", "-eo", "args"]
            self.server.seen += subprocess.run(listing, capture_output=True, text=True).stdout
            self.answer()

        do_POST = do_GET

        def answer(self):
            path, _, query = self.path.partition("?")
            environment = os.environ | {
                "GIT_PROJECT_ROOT": str(repository.folder.parent),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REMOTE_USER": USER,
            }
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            command = ["git", "http-backend"]
            done = subprocess.run(command, input=body, env=environment, capture_output=True)
            head, _, data = done.stdout.partition(b"\r\n\r\n")
            self.send_response(200)
            for line in head.decode().splitlines():
                self.send_header(*line.split(": ", 1))
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.seen = ""
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield http
        http.shutdown()


def test_a_password_works_and_is_in_no_file_and_no_command_line(
    server, repository, home, launch, tmp_path
):
    address = f"127.0.0.1:{server.server_address[1]}/{repository.folder.name}"
    url = f"http://{USER}:p%40ss%20w0rd%2F9c1f@{address}"
    done = launch("URL", url, repo=url)
    assert done.returncode == 0, done.stderr
    assert "version one" in done.stdout
    for path in (*home.rglob("*"), *(tmp_path / "runs").rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            assert PASSWORD.encode() not in data, path
            assert b"p%40ss" not in data, path
    launched = [line for line in server.seen.splitlines() if "run_from_commit" not in line]
    assert any("git" in line for line in launched)
    assert not any("w0rd" in line for line in launched)


def test_a_wrong_password_is_an_error_that_does_not_show_it(server, home, repository):
    address = f"127.0.0.1:{server.server_address[1]}/{repository.folder.name}"
    source = parse_address(f"http://{USER}:wrong-word@{address}")
    with pytest.raises(UserError, match="cannot be fetched") as caught:
        fetch_commit(source, "main", home)
    assert "wrong-word" not in str(caught.value)
    assert "wrong-word" not in str(mirror_folder(source, home))
