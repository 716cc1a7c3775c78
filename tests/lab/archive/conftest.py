"""Runs to archive, and the two kinds of places for archives: a folder and an object store."""

import json
import os
import uuid
from pathlib import Path

import pytest

from tests.lab.archive.object_store import object_store
from tests.processes import killed_at_end, zoerefine_command

ROOT = Path(__file__).resolve().parents[3]
SECRET = "Xk29vTqp7Lw0RzYe41mB"
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTEST0000",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture(scope="package")
def store():
    """A running object store."""
    for name in ("moto", "flask", "flask_cors", "boto3", "s3fs"):
        pytest.importorskip(name, reason="pip install -r requirements-archive.lock")
    with object_store() as running:
        yield running
        running.release()


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """The test has a folder and a home of its own, and no credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def command(here):
    """Run `zoerefine runs ...` in this process; it must have the exit code 0, or `code`."""
    return lambda *words, code=0: here("runs", *words, code=code)


@pytest.fixture
def refused(command):
    """Run a command that is refused in one line: refused(*words) -> the line."""

    def run(*words):
        _, out, err = command(*words, code=2)
        assert (out, err.count("\n")) == ("", 1), err
        return err

    return run


@pytest.fixture
def start():
    """Start `zoerefine runs ...` as a process; killed at the end."""
    with killed_at_end() as start:
        yield lambda *words: start(zoerefine_command("runs", *words))


class Folder:
    """Archives in a folder."""

    def __init__(self, path):
        self.path, self.url = path, str(path)

    def read(self, name):
        return (self.path / name).read_bytes()

    def write(self, name, data):
        (self.path / name).write_bytes(data)

    def remove(self, name):
        (self.path / name).unlink()

    def names(self):
        return sorted(
            str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file()
        )


class Bucket:
    """Archives in a new bucket."""

    def __init__(self, address, bucket):
        import boto3

        self.url, self.bucket = f"s3://{bucket}/archives", bucket
        self.client = boto3.client(
            "s3", endpoint_url=address, region_name="us-east-1",
            aws_access_key_id="any", aws_secret_access_key="any",
        )  # fmt: skip
        self.client.create_bucket(Bucket=bucket)

    def read(self, name):
        return self.client.get_object(Bucket=self.bucket, Key=f"archives/{name}")["Body"].read()

    def write(self, name, data):
        self.client.put_object(Bucket=self.bucket, Key=f"archives/{name}", Body=data)

    def remove(self, name):
        self.client.delete_object(Bucket=self.bucket, Key=f"archives/{name}")

    def names(self):
        listed = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", ())
        return sorted(one["Key"].removeprefix("archives/") for one in listed)


@pytest.fixture
def folder(tmp_path):
    """A folder for archives."""
    return Folder(tmp_path / "archives")


@pytest.fixture
def bucket(store, monkeypatch):
    """A new bucket for archives. Commands have its credentials in their environment."""
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": store.address}.items():
        monkeypatch.setenv(name, value)
    return Bucket(store.address, f"bucket-{uuid.uuid4().hex}")


@pytest.fixture(params=["folder", "bucket"])
def place(request):
    """Each kind of place for archives."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def run(tmp_path):
    """A small finished run of several files, runs/demo/b77d9226."""
    return make_run(tmp_path / "runs" / "demo" / "b77d9226")


def make_run(path, commit="c0ffee"):
    """Write what a finished run has."""
    (path / "checkpoints").mkdir(parents=True)
    (path / "config.yaml").write_text("RUN: {NAME: demo}\n")
    (path / "provenance.json").write_text(json.dumps({"commit": commit, "identity": "1d"}))
    (path / "status.json").write_text('{"state": "finished", "started": 1.0, "ended": 2.0}')
    (path / ".lock").touch()
    for number in range(6):
        (path / "checkpoints" / f"{number}.pt").write_bytes(os.urandom(200_000))
    return path


def contents(folder):
    """The bytes of every file below a folder, by path."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {os.fsencode(path.relative_to(folder)): path.read_bytes() for path in files}
