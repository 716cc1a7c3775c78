"""A study in a real PostgreSQL: four workers, one killed; the password is nowhere."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.cluster import free_port
from tests.search.conftest import check_whole, children

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'zoerefine[cluster]'")
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
pytestmark = pytest.mark.skipif(not PROGRAMS, reason="no PostgreSQL here: apt install postgresql")
PASSWORD = "opensesame-41"


@pytest.fixture(scope="module")
def server():
    """A server of our own on loopback, run by an unprivileged user: its URL without password."""
    user = next((u for u in ("postgres", "nobody") if os.getuid() == 0 and known(u)), None)
    programs = PROGRAMS[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    port = free_port()
    (folder / "password").write_text(PASSWORD)
    if user:
        for path in (folder, folder / "password"):
            shutil.chown(path, user)
    options = {"user": user, "cwd": folder, "check": True, "stdout": subprocess.DEVNULL}
    if user is None:
        del options["user"]
    subprocess.run(
        [programs / "initdb", "-D", folder / "data", "-U", "tester", "-A", "scram-sha-256",
         "--pwfile", folder / "password", "--no-sync"], **options,
    )  # fmt: skip
    settings = f"-h 127.0.0.1 -p {port} -k {folder} -F"
    control = [programs / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log"]
    subprocess.run([*control, "-o", settings, "start"], **options)
    try:
        yield f"postgresql://tester@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **options)
        shutil.rmtree(folder, ignore_errors=True)


def known(user):
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def test_four_workers_in_postgresql_lose_nothing_when_one_is_killed(
    server, tmp_path, slow, start_script, wait_until, monkeypatch
):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = [*slow, "--storage", server, "--workers", "4", "--trials", "6"]
    driver = start_script("search", *words)
    wait_until(lambda: list(tmp_path.glob("runs/tiny/study/trials/*/checkpoints/step*")), driver)
    os.kill(children(driver.pid)[0], signal.SIGKILL)
    out, errors = driver.communicate(timeout=240)
    assert driver.returncode == 0, errors
    check_whole(tmp_path, trials=6)
    assert not (tmp_path / "runs" / "tiny" / "study" / "study.db").exists()
    assert PASSWORD not in out + errors
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in path.read_bytes() for path in files)


def test_the_same_study_goes_on_in_another_folder(server, tmp_path, tiny, script, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    tiny.write_text(tiny.read_text() + "SEARCH: {TRAIN: {LR: {low: 0.001, high: 0.01}}}\n")
    words = ["--config", tiny, "--storage", server, "TRAIN.EPOCHS", "1", "RUN.NAME", "shared"]
    here = script("search", *words, "--trials", "2")
    assert here.returncode == 0, here.stderr
    there = script("search", *words, "--trials", "3", "RUN.ROOT", "elsewhere")
    assert there.returncode == 0, there.stderr
    assert "2 of 3 trials" in there.stderr
    assert len(list(tmp_path.glob("elsewhere/shared/study/trials/*"))) == 1


def test_a_wrong_password_is_one_line(server, tiny, script, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "wrong-one")
    done = script("search", "--config", tiny, "--storage", server, "SEARCH.TRAIN.LR", "[1.0]")
    assert done.returncode == 2
    assert "password authentication failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert "wrong-one" not in done.stderr
