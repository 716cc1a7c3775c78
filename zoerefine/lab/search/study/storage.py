"""Where a study lives: a SQLite file beside its trials, or a PostgreSQL server for many machines.

A password comes from PGPASSWORD or ~/.pgpass, as in PostgreSQL's own programs, or from the
variable that the URL names (`postgresql://USER:$VARIABLE@HOST/DATABASE`). The variable is read when
a process connects, so the password appears in no config, log or list of processes.
"""

import hashlib
import logging
import os
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from sqlalchemy.engine import make_url

from zoerefine.base.errors import UserError, missing_package
from zoerefine.base.files.file_lock import lock, process_line
from zoerefine.base.messages import warn
from zoerefine.base.run_dir import RunDir
from zoerefine.base.secrets import password_variable, register_secret, url_fault

SAID_AFTER_S = 2.0  # a lock that is held for longer than a write takes
WAIT_S = 60  # for another process that writes to the same SQLite file, or for a server
MISSED_HEARTBEATS = 3  # after which a trial's worker counts as dead


def waits_for_run(run: RunDir) -> str:
    """What a trial waits for whose run another process still writes."""
    status = run.status()
    return f"{run.path} is still being written by {process_line(status.pid, status.host)}"


def storage_url(text: str, folder: Path) -> sqlalchemy.URL:
    """The study's database: SQLite in its folder where `text` is empty.

    Raises `UserError` where the text is not a URL, names another kind of database, holds a
    password, or names a variable that is not set.
    """
    if not text:
        return sqlalchemy.URL.create("sqlite", database=str(folder / "study.db"))
    fault, url = url_fault(text), None
    if not fault:
        try:
            url = make_url(text)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            fault = "it is not a URL"
    if url is None:  # the text is not repeated: it may hold a password
        raise UserError(
            f"a study's database is sqlite:///FILE or postgresql://USER@HOST/DATABASE: {fault}"
        )
    if name := password_variable(text):
        url = url.set(password=password_from(name))
    is_postgresql = url.get_backend_name() == "postgresql"
    return url.set(drivername="postgresql+psycopg") if is_postgresql else url


def password_from(variable: str) -> str:
    """The password in an environment variable. Raises `UserError` where it is not set."""
    password = os.environ.get(variable, "")
    if not password:
        raise UserError(
            f"the study's database takes its password from ${variable}, which is not set on this "
            f"machine: set it, or remove ${variable} and use ~/.pgpass"
        )
    register_secret(password)
    return password


def open_storage(url: sqlalchemy.URL, heartbeat_s: int) -> optuna.storages.RDBStorage:
    """Connect, and create the tables where they are missing.

    Raises `UserError` where the database cannot be reached.
    """
    silence_optuna()
    logging.getLogger("alembic").setLevel(logging.WARNING)
    options: dict[str, Any] = {"pool_pre_ping": True}
    word = "timeout" if url.get_backend_name() == "sqlite" else "connect_timeout"
    options["connect_args"] = {word: WAIT_S}
    with database_errors(url):
        return optuna.storages.RDBStorage(
            url.render_as_string(hide_password=False),
            engine_kwargs=options,
            heartbeat_interval=heartbeat_s,
            grace_period=MISSED_HEARTBEATS * heartbeat_s,
        )


@contextmanager
def database_errors(url: sqlalchemy.URL) -> Iterator[None]:
    """Turn the errors of a database that cannot be used into `UserError`."""
    try:
        yield
    except ImportError:
        raise missing_package("PostgreSQL needs psycopg", "cluster") from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        lines = str(getattr(error, "orig", None) or error).strip().splitlines()
        raise UserError(f"the study's database {url} cannot be used: {lines[0]}") from None


def silence_optuna() -> None:
    """Suppress Optuna's line for every trial and its warnings about experimental features."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # A trial that another worker continues may report a step again.
    warnings.filterwarnings("ignore", message="The reported value is ignored")
    # Optuna expects `Study.optimize` to send heartbeats; here a thread of the worker sends them.
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed")


@contextmanager
def study_lock(storage: optuna.storages.RDBStorage, name: str, folder: Path) -> Iterator[None]:
    """Hold a study's lock, which one worker at a time can have.

    It is a file lock for SQLite, and the server's advisory lock for PostgreSQL; both end with
    the process that holds them.
    """
    if storage.engine.dialect.name == "postgresql":
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        with storage.engine.begin() as connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
            yield
        return
    file = folder / ".study.lock"
    timer = threading.Timer(SAID_AFTER_S, say_who_holds, (name, file))
    timer.daemon = True
    timer.start()
    try:
        with lock(file) as descriptor:
            timer.cancel()
            os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".ljust(80).encode(), 0)
            yield
    finally:
        timer.cancel()


def say_who_holds(name: str, file: Path) -> None:
    """Print who holds a study's lock, as its holder wrote it into the lock's file."""
    pid, _, host = file.read_text(errors="replace").strip().partition(" ")
    by = process_line(int(pid), host) if pid.isdigit() else "another process"
    warn(f"waiting for the lock of study {name}, which is held by {by}")
