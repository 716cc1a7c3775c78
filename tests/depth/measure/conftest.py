"""A recording of three small frames, and the page that measures it."""

import logging
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest

from zoerefine.base.guarded_server import Server, listen, with_token
from zoerefine.commands.measure import open_session, parser
from zoerefine.depth.measure.server import page

HEIGHT, WIDTH = 48, 64
TOKEN = "a-token"


@pytest.fixture
def recording(tmp_path, monkeypatch):
    """Folders rgb/ and zoe/ with the frames a, b and c; the depth of a pixel is predicted(name)."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for folder in ("rgb", "zoe"):
        Path(folder).mkdir()
    for name in "abc":
        rgb = cv2.blur(rng.integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8), (9, 9))
        assert cv2.imwrite(f"rgb/{name}.jpg", rgb)
        assert cv2.imwrite(f"zoe/{name}.png", predicted_u16(name))
    return tmp_path


def predicted_u16(name):
    """Metres * 256 [H, W]; no depth at the upper left pixel."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    depth_m = 1 + 0.03 * x + 0.02 * y + 0.3 * "abc".index(name)
    depth_m[0, 0] = 0
    return np.rint(256 * depth_m).astype(np.uint16)


def options(*words):
    return ["room.csv", "--rgb", "rgb", "--depth", "zoe", *map(str, words)]


@pytest.fixture
def serve(recording):
    """Serve the page from this process: serve("--intrinsics", ...) -> its address with a token."""
    servers = []
    logging.getLogger("werkzeug").setLevel(logging.WARNING)

    def start(*words):
        session = open_session(parser().parse_args(options(*words)))
        server = Server(page(session), listen("127.0.0.1", 0), TOKEN)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return with_token(server.get_url(), TOKEN)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
