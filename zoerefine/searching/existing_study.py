"""Finds the study of a folder in its database, without writing anything."""

from pathlib import Path

import optuna
import sqlalchemy

from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.searching.storage import database_errors, silence_optuna, storage_url
from zoerefine.searching.trial_record import settings_file
from zoerefine.yaml_text import read_yaml


def load_study(run: RunDir) -> optuna.Study:
    """The study of a folder, opened without writing. Raises `UserError` as `find_study`."""
    silence_optuna()
    storage, number = find_study(run, "")
    return optuna.load_study(
        study_name=storage.get_study_name_from_id(number), storage=storage, sampler=None
    )


def find_study(run: RunDir, storage: str) -> tuple[optuna.storages.RDBStorage, int]:
    """A study's database, and the study's id in it. Writes nothing.

    Raises `UserError` where there is no study, or its database cannot be read.
    """
    # Not load_config: a study of another commit may have keys that this one lacks.
    file = settings_file(run)
    config = read_yaml(file).tree if file.exists() else {}
    if "STUDY" not in config:
        raise UserError(f"{run.path} is not a study: give the folder that a search wrote")
    url = storage_url(storage or config["STUDY"].get("STORAGE", ""), run.path)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise UserError(f"{run.path} is not a study: there is no database {url.database}")
    name = config["RUN"]["NAME"]
    database = open_database(url)
    studies = database.get_all_studies() if database else []
    numbers = {one.study_name: one._study_id for one in studies}
    if database is None or name not in numbers:
        raise UserError(f"{url} has no study {name}, to which {run.path} belongs")
    return database, numbers[name]


def open_database(url: sqlalchemy.URL) -> optuna.storages.RDBStorage | None:
    """A study database, opened without writing to it; None where it has no tables yet.

    Raises `UserError` where it cannot be read.
    """
    with database_errors(url):
        engine = sqlalchemy.create_engine(url)
        is_empty = not sqlalchemy.inspect(engine).has_table("studies")
        engine.dispose()
        if is_empty:  # RDBStorage would create its tables
            return None
        return optuna.storages.RDBStorage(
            url.render_as_string(hide_password=False),
            engine_kwargs={"pool_pre_ping": True},  # the server may have been restarted
            skip_compatibility_check=True,  # optuna-dashboard shows a message
            skip_table_creation=True,
        )
