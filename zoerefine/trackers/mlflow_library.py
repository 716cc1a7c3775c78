"""MLflow's library, imported so that it sends nothing about its use and logs only errors."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zoerefine.errors import UserError
from zoerefine.trackers.tracked_run import INSTALL
from zoerefine.visible_text import one_line

# MLflow reads folders of files only where this is set.
FOLDERS = "MLFLOW_ALLOW_FILE_STORE"


def import_mlflow() -> None:
    """Import MLflow. Raises `UserError` where it is not installed."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ[FOLDERS] = "true"
    try:
        import mlflow.tracking  # noqa: F401
    except ImportError:
        raise UserError(f"reading runs of MLflow needs mlflow-skinny: {INSTALL}") from None
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)


def open_client(uri: str) -> Any:
    """An `MlflowClient` of a store. Raises `UserError` where MLflow is not installed."""
    import_mlflow()
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Turn what MLflow raises into a `UserError` that names a place."""
    import_mlflow()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        raise UserError(f"{place}: {one_line(str(error))}") from None
