"""zoerefine run: the commit runs, and the record matches what ran."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

import zoerefine
from tests.lab.launch.conftest import launch_words
from tests.processes import run_new_python, run_program
from zoerefine.base.files.atomic import write_json
from zoerefine.base.run_dir import LARGEST_DOCUMENT, RunDir

SCRIPT = Path(__file__).resolve().parents[3] / "platform" / "run_from_commit.py"


def test_the_commit_runs_in_its_own_workspace_and_is_recorded(
    launch, repository, config, tmp_path, only_run
):
    done = launch("KEY", "other")
    assert "version one" in done.stdout
    assert "config KEY: value ['KEY', 'other'] None" in done.stdout
    run = only_run()
    assert done.stdout.splitlines()[-1] == str(run.path)
    assert run.status().state == "finished"
    assert "version one" in run.log_file.read_text()
    known = json.loads(run.provenance_file.read_text())
    assert known["commit"] == repository.first
    assert known["overrides"] == ["KEY", "other"]
    assert known["exit_status"] == 0
    assert (run.path / "input.yaml").read_text() == config.read_text()
    workspace = done.stdout.split("folder ")[1].splitlines()[0]
    assert workspace.startswith(str(tmp_path / "home"))
    assert f"first on the path {workspace}" in done.stdout
    assert (tmp_path / "runs" / "job" / "latest").resolve() == run.path


def test_a_finished_run_is_not_run_again_and_an_unfinished_one_is(launch, config, tmp_path):
    launch()
    again = launch()
    assert "version" not in again.stdout
    assert "is finished: nothing to do" in again.stderr
    config.write_text("fail: 1")
    for _ in range(2):
        failed = launch(code=1)
        assert "version one" in failed.stdout
    states = {RunDir(p).status().state for p in (tmp_path / "runs" / "job").glob("[0-9a-f]*-*")}
    assert states == {"finished", "failed"}
    assert "it went wrong" in failed.stderr


@pytest.mark.parametrize(
    ("text", "words", "name"),
    [
        ("RUN: {NAME: on}", (), "on"),
        ("RUN: {NAME: 051}", (), "051"),
        ("KEY: 2020-01-01", ("RUN.NAME", "07"), "07"),
    ],
)
def test_a_run_has_the_name_that_its_config_says_as_it_is_written(
    launch, config, tmp_path, text, words, name
):
    config.write_text(text)
    launch(*words)
    assert (tmp_path / "runs" / name / "latest").exists()


def test_uncommitted_changes_are_refused_or_recorded_and_applied(
    launch, repository, tmp_path, only_run
):
    (repository.folder / "version.txt").write_text("changed")
    (repository.folder / "new file.bin").write_bytes(bytes(range(256)))
    assert "version.txt" in launch(commit="HEAD", code=2).stderr
    assert not (tmp_path / "runs").exists()
    assert "version changed" in launch("--allow-dirty", commit="HEAD").stdout
    run = only_run()
    assert "new file.bin" in (run.path / "uncommitted.patch").read_bytes().decode(errors="replace")
    assert json.loads(run.provenance_file.read_text())["dirty_digest"]
    # The user's own tree and index are unchanged.
    status = repository.git("status", "--porcelain").splitlines()
    assert [line.strip() for line in status] == ["M version.txt", '?? "new file.bin"']


def test_an_untracked_file_is_named_and_does_not_stop_the_launch_of_a_commit(launch, repository):
    (repository.folder / "notes.txt").write_text("mine")
    (repository.folder / "report" / "val_acc").mkdir(parents=True)  # of `zoerefine analyze`
    for name in ("collected.json", "report.html", "val_acc/runs.csv"):
        (repository.folder / "report" / name).touch()
    for words in ((), ("--seeds", "1,2")):
        done = launch(*words, commit="HEAD")
        warnings = [line for line in done.stderr.splitlines() if "notes.txt" in line]
        assert len(warnings) == 1
        assert warnings[0].startswith("warning: the job does not have these files")
        assert "report" not in warnings[0]
    (repository.folder / "version.txt").write_text("changed")
    assert "version.txt" in launch("KEY", "2", commit="HEAD", code=2).stderr


@pytest.mark.parametrize("runs", ["runs", "experiments/runs"])
def test_git_ignores_everything_that_a_launch_writes_into_a_repository(launch, repository, runs):
    (repository.folder / "experiments").mkdir()
    (repository.folder / "experiments" / "notes.md").write_text("tracked")
    repository.commit("three")
    for _ in range(2):
        where = ("--runs", repository.folder / runs, "--home", repository.folder / "copies")
        assert "warning" not in launch(*where, "--again", commit="HEAD").stderr
    assert repository.git("status", "--porcelain") == ""


def test_runs_in_a_folder_that_exists_are_ignored_and_its_other_files_are_not(launch, repository):
    (repository.folder / "runs").mkdir()
    (repository.folder / "runs" / "mine.md").write_text("mine")
    launch("--runs", repository.folder / "runs", commit="HEAD")
    status = repository.git("status", "--porcelain", "-uall")
    assert status == "?? runs/mine.md"


def test_uncommitted_changes_do_not_reach_an_older_commit(launch, repository):
    (repository.folder / "version.txt").write_text("changed")
    assert "version one" in launch().stdout


def test_older_spellings_of_options_have_the_same_meaning(tmp_path, repository, config):
    words = [
        *(sys.executable, SCRIPT, "--repo_url", f"file://{repository.folder}"),
        *("--branch_name", "main", "--commit_hash", repository.first),
        *("--cfg_path", config, "--cfg_path_arg_name", "config"),
        *("--copies_base_path", "copies", "--module_path", "job.py"),
    ]
    assert "version one" in run_program(words, cwd=tmp_path).stdout
    assert (tmp_path / "copies" / "workspaces").is_dir()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--module", "absent.py"], "the commit has no script absent.py"),
        (["--module", "../../outside.py"], "the commit has no script"),
        (["--module", "os; import this"], "neither a script's path nor a module's name"),
        (["--config", "absent.yaml"], "no config file absent.yaml"),
        (["--commit", "0123456789"], "no commit, tag or branch '0123456789'"),
        (["--repo", "/absent/folder"], "neither an existing folder nor"),
        (["--runs", "runs", "KEY"], "'KEY' has no value\n"),
        (["lr=0.1"], "pairs: write lr 0.1 in the place of lr=0.1\n"),
        (["tag=big", "lr=0.9"], "pairs: write tag big in the place of tag=big\n"),
        (["lr", "0.1", "augment", "--seeds", "0:2"], "'augment' has no value\n"),
        (["--lr", "0.1"], "the script's own are given as KEY VALUE, such as lr 0.1, or after --"),
        (["--overrides", "file", "LT", "1"], "has no key LT"),
        (["--metric-pattern", "("], "metric pattern '('"),
        (["--name", "a/b"], "--name 'a/b' cannot be a folder's name"),
        (["--caller", "absent"], "is not an existing folder"),
        *(([f"--left-limit={n}"], "argument --left-limit: ") for n in ("inf", "nan", "-1")),
        (["--seeds", "5:5"], "invalid"),
        (["--seeds", "0:2000000000"], "2000000000 seeds; the limit is 10000"),
        (["--seeds", "0:2", "--parallel", "0"], "must be at least 1, got 0"),
        (["--seeds", "0:2", "--allow-dirty"], "commit the changes first"),
        (["--executor", "ray"], "RAY_ADDRESS"),
        (["--executor", "ray", "--partition", "gpu"], "--executor ray has no use for --partition"),
        (["--time", "90"], "--executor local has no use for --time"),
        (["--gpus", "1"], "--executor local cannot reserve GPUs"),
        (["--requeues", "x"], "error: --requeues must be an integer from 0 to 1000000, got 'x'"),
        (["--gpus", "x"], "error: --gpus must be a number from 0 to 1024, got 'x'"),
        (["--nodes", "0"], "--nodes must be an integer from 1 to 1024"),
        (["--nodes", "2"], "--processes 1 cannot be divided among --nodes 2: give a multiple"),
        (["--nodes", "2", "--processes", "3"], "--processes 3 cannot be divided among --nodes 2"),
        (["--nodes", "2", "--processes", "2"], "--executor local has no use for --nodes"),
        *((["--processes", number], "--processes") for number in ("0", "-1", "x", "100000")),
    ],
)
def test_an_error_before_the_start_is_one_line_and_leaves_no_run(
    launch, tmp_path, monkeypatch, words, message
):
    monkeypatch.setenv("RAY_ADDRESS", "")
    done = launch(*words, code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.glob("runs/*/*/provenance.json"))


def test_ctrl_c_lets_the_job_save_a_checkpoint_and_is_recorded(launch, config, tmp_path, only_run):
    config.write_text("wait: 1")
    running = launch(background=True)
    assert any("waiting" in line for line in running.stdout)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=120)
    assert "stopped with a checkpoint" in output
    assert running.returncode == 130
    assert only_run().status().state == "killed"


def test_a_run_that_is_being_written_cannot_be_launched_again(launch, config):
    config.write_text("wait: 1")
    running = launch(background=True)
    assert any("waiting" in line for line in running.stdout)
    assert "being written by another process" in launch(code=2).stderr
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=120)


def test_simultaneous_launches_of_several_commits_all_succeed(launch, repository, tmp_path):
    commits = [repository.commit(f"number {n}") for n in range(3)]
    running = [
        launch("KEY", f"{copy}", commit=commit, background=True)
        for commit in commits
        for copy in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * 6, outputs
    for number, (output, _) in enumerate(outputs):
        assert f"version number {number // 2}" in output


def test_no_secret_reaches_a_file(launch, config, tmp_path, only_run):
    config.write_text("KEY: value\n")
    env = {"MY_API_TOKEN": "tok-51c2a7e8", "DB_PASSWORD": "hunter2hunter2"}
    launch("URL", "https://me:pw-93fe@host/x", "KEY", "tok-51c2a7e8", env=env)
    for path in only_run().path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            for secret in (b"tok-51c2a7e8", b"hunter2hunter2", b"pw-93fe"):
                assert secret not in data, path


@pytest.mark.parametrize("env", [{}, {"DB_PASSWORD": "hunter2"}], ids=["unknown", "known"])
def test_a_databases_password_is_refused_before_a_run_is_made(env, launch, config, tmp_path):
    url = "postgresql://me:hunter2@h/d"
    config.write_text(f"STUDY: {{STORAGE: {url}}}")
    for words in ((), ("STUDY.STORAGE", url)):
        done = launch(*words, env=env, code=2)
        assert "STUDY.STORAGE holds a password" in done.stderr
        assert "PGPASSWORD" in done.stderr and "hunter2" not in done.stderr
        assert not (tmp_path / "runs").exists()
        config.write_text("KEY: value")


def test_a_secret_is_not_repeated_where_the_config_is_not_valid_either(launch, config):
    config.write_text("A: 1\nB: tok-51c2a7e8: x\n")
    done = launch(env={"MY_API_TOKEN": "tok-51c2a7e8"}, code=2)
    assert done.stderr.count("\n") == 1
    assert "MY_API_TOKEN" in done.stderr and "51c2a7e8" not in done.stderr


def test_a_config_that_is_no_ordinary_file_is_one_line(launch, repository, tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "large.yaml").touch()
    os.truncate(tmp_path / "large.yaml", 2**33)
    committed = repository.folder / "committed.yaml"
    committed.write_bytes(b"#" * (LARGEST_DOCUMENT + 1))
    commit = repository.commit("with a large config")
    messages = {
        "/dev/zero": "not a regular file",
        "pipe.yaml": "not a regular file",
        "large.yaml": "larger than 64 MiB",
        "committed.yaml": "larger than 64 MiB",
    }
    for name, message in messages.items():
        done = launch("--config", name, commit=commit, code=2)
        assert done.stderr.count("\n") == 1, name
        assert message in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_databases_password_can_be_named_by_its_variable(launch, config, tmp_path, only_run):
    config.write_text("STUDY: {STORAGE: 'postgresql://me:$DB_PASSWORD@h/d'}")
    launch(env={"DB_PASSWORD": "hunter2hunter2"})
    assert "$DB_PASSWORD" in (only_run().path / "input.yaml").read_text()
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert b"hunter2" not in path.read_bytes(), path


def test_the_launcher_loads_neither_the_config_schema_nor_numerical_packages():
    program = "import sys, zoerefine.commands.run; print(*sys.modules, sep='\\n')"
    loaded = set(run_new_python(program).stdout.split())
    assert "zoerefine.lab.launch.launcher" in loaded
    assert not loaded & {"zoerefine.base.config", "yacs", "numpy", "torch", "optuna", "rich"}


def test_a_folder_with_the_run_of_another_job_is_refused(launch, only_run):
    launch()
    run = only_run()
    write_json(run.provenance_file, run.read_json(run.provenance_file) | {"identity": "0" * 64})
    done = launch(code=2)
    assert done.stderr.count("\n") == 1
    assert f"{run.path} belongs to another job" in done.stderr


WALK = """
import subprocess, sys
from zoerefine.cli import main

files = set()

def note(frame, event, _):
    code = frame.f_code
    if event != "call" or code.co_name == "<module>":
        return
    if code is subprocess.Popen.__init__.__code__ and "--fixed" in frame.f_locals["args"]:
        sys.setprofile(None)  # the script's process
        print(*sorted(files), sep="\\n")
    while frame := frame.f_back:  # what is called while a module is imported does not count
        if frame.f_code.co_name == "<module>" and frame.f_back:
            return
    files.add(code.co_filename)

sys.setprofile(note)
sys.exit(main(sys.argv[1:]))
"""


def test_a_launch_passes_thirty_files_before_the_scripts_first_line(
    repository, config, tmp_path, home
):
    """That many a reader has to know, who follows docs/architecture.md: files that are called."""
    words = launch_words(repository, config, "KEY", "other", "--", "--fixed", "word")
    done = run_new_python(WALK, "run", *words, cwd=tmp_path)
    package = str(Path(zoerefine.__file__).parent)
    passed = [line for line in done.stdout.splitlines() if line.startswith(package)]
    assert f"{package}/lab/launch/launcher.py" in passed
    assert len(passed) <= 30, passed
