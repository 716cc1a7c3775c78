"""Ports for servers that tests start."""

import socket
from contextlib import contextmanager


@contextmanager
def reserved_port():
    """A free port of 127.0.0.1 that the system gives to nobody else meanwhile.

    It is bound by a socket that does not listen. So a server with SO_REUSEADDR, which all ours
    set, can listen on it.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
