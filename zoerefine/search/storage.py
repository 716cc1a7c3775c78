"""Where a study lives: a SQLite file beside its trials, or a PostgreSQL server for many machines.

Passwords come from PGPASSWORD or ~/.pgpass, where PostgreSQL's own programs look for them, and
from nowhere else: so none can end in a config, a log or a list of processes.
"""

import hashlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from sqlalchemy.engine import make_url

from zoerefine.errors import UserError
from zoerefine.locks import lock

WAIT_S = 60  # for another process that writes to the same SQLite file, or for a server
HEARTBEATS = 3  # that may be missed before a trial's worker is taken for dead


def storage_url(text: str, folder: Path) -> sqlalchemy.URL:
    """The study's database: SQLite in its folder where `text` is empty.

    Raises:
        UserError: no such kind of database, or a password in the URL.
    """
    if not text:
        return sqlalchemy.URL.create("sqlite", database=str(folder / "study.db"))
    try:
        url = make_url(text)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise UserError("--storage is no URL such as postgresql://user@host/database") from None
    if url.password or any("password" in word for word in url.query):
        raise UserError(
            "--storage holds a password, which others would see: leave it out, and give it by "
            "PGPASSWORD or ~/.pgpass"
        )
    if url.get_backend_name() == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite":
        return url
    raise UserError(f"--storage must be sqlite:///FILE or postgresql://..., got {url}")


def open_storage(url: sqlalchemy.URL, heartbeat_s: int) -> optuna.storages.RDBStorage:
    """Connect; what the database lacks is made.

    Raises `UserError` where the database cannot be reached.
    """
    quiet()
    logging.getLogger("alembic").setLevel(logging.WARNING)
    options: dict[str, Any] = {"pool_pre_ping": True}
    word = "timeout" if url.get_backend_name() == "sqlite" else "connect_timeout"
    options["connect_args"] = {word: WAIT_S}
    with explained(url):
        return optuna.storages.RDBStorage(
            url.render_as_string(hide_password=False),
            engine_kwargs=options,
            heartbeat_interval=heartbeat_s,
            grace_period=HEARTBEATS * heartbeat_s,
        )


@contextmanager
def explained(url: sqlalchemy.URL) -> Iterator[None]:
    """What a database says when it cannot be used becomes a `UserError`."""
    try:
        yield
    except ImportError:
        raise UserError("PostgreSQL needs psycopg: pip install 'zoerefine[cluster]'") from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or error).strip().splitlines()
        raise UserError(f"the study's database {url} cannot be used: {said[0]}") from None


def quiet() -> None:
    """Silence what Optuna says of every trial, and of its features that are not final."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # It is: a worker's own thread beats (worker.py), since trials are asked for and told.
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed")


@contextmanager
def alone(storage: optuna.storages.RDBStorage, name: str, folder: Path) -> Iterator[None]:
    """Hold the study for a moment: of all workers on all machines, one at a time is in here.

    The lock ends with its holder: a file's for SQLite, the server's own for PostgreSQL.
    """
    if storage.engine.dialect.name == "postgresql":
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        with storage.engine.begin() as connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
            yield
        return
    with lock(folder / ".ask.lock"):
        yield
