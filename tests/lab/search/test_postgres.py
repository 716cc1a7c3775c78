"""Studies in a real PostgreSQL: workers, one of them killed; the password is written nowhere."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.lab.search.conftest import check_finished_study, training_runs
from tests.ports import reserved_port
from tests.processes import end_of, run_program
from zoerefine.base.errors import UserError
from zoerefine.lab.search.study.claims import ClaimLost, claim_trial, complete, requeue_trials_of
from zoerefine.lab.search.subject import TrialOutcome

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'zoerefine[cluster]'")
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
pytestmark = pytest.mark.skipif(not PROGRAMS, reason="no PostgreSQL here: apt install postgresql")
PASSWORD = "open:sesame@41/%?"


@pytest.fixture(scope="module")
def server():
    """The URL, without password, of a server on loopback that an unprivileged user runs."""
    user = next((u for u in ("postgres", "nobody") if os.getuid() == 0 and exists(u)), None)
    programs = PROGRAMS[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="pg"))
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
    control = [programs / "pg_ctl", "-D", folder / "data", "-w", "-t", "300", "-l", folder / "log"]
    with reserved_port() as port:
        settings = f"-h 127.0.0.1 -p {port} -k {folder} -F"
        subprocess.run([*control, "-o", settings, "start"], **options)
        try:
            yield f"postgresql://tester@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **options)
            shutil.rmtree(folder, ignore_errors=True)


def exists(user):
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def name_variable(server, monkeypatch, tmp_path):
    monkeypatch.setenv("STUDY_DATABASE_LOGIN", PASSWORD)
    return server.replace("tester@", "tester:${STUDY_DATABASE_LOGIN}@")


def write_pgpass(server, monkeypatch, tmp_path):
    file = tmp_path / "home" / ".pgpass"
    file.parent.mkdir()
    escaped = PASSWORD.replace("\\", r"\\").replace(":", r"\:")
    file.write_text(f"127.0.0.1:*:*:tester:{escaped}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    return server


@pytest.fixture(params=[name_variable, write_pgpass])
def storage(request, server, monkeypatch, tmp_path):
    """The URL for STUDY.STORAGE, with the password elsewhere."""
    monkeypatch.delenv("PGPASSWORD", raising=False)
    return request.param(server, monkeypatch, tmp_path)


def test_a_password_is_found_and_written_nowhere(
    storage, server, tiny, start_script, wait_until, tmp_path, request
):
    name = f"secret-{request.node.callspec.id}"
    words = ("RUN.NAME", name, "STUDY.TRIALS", "2", "TRAIN.EPOCHS", "1", "TRAIN.PICTURES", "0")
    space = ("SEARCH.TRAIN.LR", "[0.001, 0.002, 0.003]")
    search = start_script(
        "search", "--config", tiny, "--storage", storage, "--workers", "2", *words, *space
    )
    study = tmp_path / "runs" / name / "study"
    wait_until(lambda: list(study.glob("trials/*/status.json")), search)
    command_lines = run_program(["ps", "-eo", "args"]).stdout
    out, errors = end_of(search)

    dashboard = start_script("dashboard", study, "--port", "0")
    page = dashboard.stdout.readline().split()[1]
    place, _, token = page.partition("?")
    address = f"{place.partition('/dashboard')[0]}/api/studies?{token}"
    with urllib.request.urlopen(address) as answer:
        listed = answer.read().decode()
    assert name in [one["study_name"] for one in json.loads(listed)["study_summaries"]]

    shown = [command_lines, out, errors, listed, dump(server)]
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.name != ".pgpass"]
    shown += [path.read_bytes().decode("latin-1") for path in files]
    forms = PASSWORD, quote(PASSWORD, safe=""), json.dumps(PASSWORD)[1:-1]
    assert not any(form in text for text in shown for form in forms)


def dump(server):
    """Everything that is in the database."""
    program, variables = PROGRAMS[-1].parent / "pg_dump", {"PGPASSWORD": PASSWORD}
    return run_program([program, server], env=os.environ | variables).stdout


def test_a_variable_that_is_not_set_is_named(server, tiny, script, tmp_path):
    url = server.replace("tester@", "tester:$NOT_SET_HERE@")
    done = script("search", "--config", tiny, "--storage", url, "SEARCH.TRAIN.LR", "[1.0]", code=2)
    assert done.stderr.count("\n") == 1
    assert "$NOT_SET_HERE, which is not set" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_workers_in_postgresql_lose_nothing_when_one_is_killed(
    server, tmp_path, gated, start_script, wait_until, monkeypatch
):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    driver = start_script("search", *gated.words, "--storage", server, "--workers", "2")
    wait_until(lambda: training_runs(tmp_path), driver)
    os.kill(training_runs(tmp_path)[0].status().pid, signal.SIGKILL)
    gated.open()
    out, errors = end_of(driver)
    check_finished_study(tmp_path)
    assert not (tmp_path / "runs" / "tiny" / "study" / "study.db").exists()
    assert PASSWORD not in out + errors
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in path.read_bytes() for path in files)


def test_the_same_study_continues_in_another_folder(server, open_study, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    space = "{TRAIN: {LR: {low: 0.001, high: 0.01}}}"
    words = ("STUDY.STORAGE", server, "RUN.NAME", "shared", "STUDY.TRIALS", 3)
    here, there = (open_study(space, *words, folder=name) for name in ("here", "there"))
    complete(here, claim_trial(here, "a"), TrialOutcome({"abs_rel": 0.1}))
    lost = claim_trial(here, "a")
    requeue_trials_of(there, "a")
    again = claim_trial(there, "b")
    assert again.number == lost.number == 1
    assert again.run.path == there.run.path / "trials" / "0001"
    with pytest.raises(ClaimLost):
        complete(here, lost, TrialOutcome({"abs_rel": 0.2}))
    assert claim_trial(here, "a").number == 2
    assert claim_trial(there, "b") is None


def test_one_worker_at_a_time_holds_the_lock_of_a_study(server, open_study, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    words = ("STUDY.STORAGE", server, "RUN.NAME", "crowded", "STUDY.TRIALS", 12)
    studies = [open_study("{SEED: {low: 0, high: 99}}", *words) for _ in range(4)]
    numbers = []

    def run_trials(study):
        while claim := claim_trial(study, "a"):
            numbers.append(claim.number)
            complete(study, claim, TrialOutcome({"abs_rel": 0.1}))

    threads = [threading.Thread(target=run_trials, args=(study,)) for study in studies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = studies[0].trials()
    assert sorted(numbers) == [trial.number for trial in trials]
    assert len(trials) == len({trial.params["SEED"] for trial in trials}) == 12


def test_a_wrong_password_is_one_sentence_without_it(server, open_study, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "wrong-one")
    with pytest.raises(UserError, match="password authentication failed") as caught:
        open_study("{TRAIN: {LR: [1.0]}}", "STUDY.STORAGE", server)
    assert "wrong-one" not in str(caught.value)
