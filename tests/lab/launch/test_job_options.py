"""What a launch gives its job: working directory, overrides, seed, attempt, further executions."""

import json
import sys

import pytest

from tests.processes import run_program, run_zoerefine
from zoerefine.base.run_dir import RunDir

SHOW = """
import json, os, sys
from pathlib import Path
import where
names = ("SEED", "ATTEMPT", "RUN_FOLDER", "CALLER_FOLDER")
known = {name: os.environ[f"ZOEREFINE_{name}"] for name in names}
known |= {"folder": os.getcwd(), "words": sys.argv[3:], "code": where.VERSION}
known["config"] = Path(sys.argv[2]).read_text()
Path(known["RUN_FOLDER"], "known.json").write_text(json.dumps(known))
sys.exit("failed as asked" if "fail" in sys.argv else 0)
"""


@pytest.fixture
def shown(launch, repository, tmp_path, config):
    """Launch a script that imports a package of its commit: shown(*words) -> what it was given."""
    (repository.folder / "tools").mkdir()
    (repository.folder / "tools" / "show.py").write_text(SHOW)
    (repository.folder / "tools" / "beside.py").write_text("")
    (repository.folder / "where").mkdir()
    (repository.folder / "where" / "__init__.py").write_text("VERSION = 'committed'\n")
    (repository.folder / "where" / "__main__.py").write_text(f"import beside\n{SHOW}")
    (repository.folder / "beside.py").write_text("")
    commit = repository.commit("with a package")
    # The user's folder has another version of the package.
    (tmp_path / "where").mkdir()
    (tmp_path / "where" / "__init__.py").write_text("VERSION = 'the wrong one'\n")
    (tmp_path / "beside.py").write_text("raise SystemExit('the wrong module')\n")

    def run(*words, module="tools/show.py", code=0, name="job"):
        done = launch("--module", module, *words, commit=commit, code=code)
        run.done, run.run = done, RunDir(tmp_path / "runs" / name / "latest")
        return json.loads((run.run.path / "known.json").read_text())

    return run


@pytest.mark.parametrize("module", ["tools/show.py", "where"])
def test_the_code_comes_from_the_commit_in_every_working_directory(shown, tmp_path, module):
    folders = {where: shown("--cwd", where, module=module) for where in ("caller", "run")}
    assert {known["code"] for known in folders.values()} == {"committed"}
    assert folders["caller"]["folder"] == str(tmp_path)
    assert folders["run"]["folder"] == folders["run"]["RUN_FOLDER"]
    known = shown(module=module)
    assert known["code"] == "committed"
    assert known["folder"].startswith(str(tmp_path / "home"))
    assert len({folder["RUN_FOLDER"] for folder in (known, *folders.values())}) == 3
    beside = shown("--cwd", "script", module=module)
    assert beside["code"] == "committed"
    assert beside["folder"].removeprefix(known["folder"]) == ("/tools" if ".py" in module else "")


def test_older_spellings_imply_the_users_folder(shown, tmp_path, config):
    assert shown("--cfg_path", config)["folder"] == str(tmp_path)
    assert shown("--cfg_path", config, "--cwd", "run")["folder"] != str(tmp_path)


def test_overrides_are_merged_into_the_config_where_a_script_takes_only_a_file(shown, config):
    config.write_text("# mine\nLR: 0.1  # rate\nSEED: 0\nSIZE: !!python/tuple [1, 2]\n")
    known = shown("--overrides", "file", "LR", "0.2", "SEED", "3")
    assert known["words"] == []
    assert known["config"] == config.read_text().replace("0.1", "0.2").replace("SEED: 0", "SEED: 3")
    assert known["SEED"] == "3"
    recorded = json.loads(shown.run.provenance_file.read_text())
    assert (recorded["overrides_in"], recorded["overrides"]) == ("file", ["LR", "0.2", "SEED", "3"])
    # The same config written by hand is the same job.
    config.write_text(known["config"])
    shown()
    assert "nothing to do" in shown.done.stderr
    assert shown("LR", "0.3")["words"] == ["LR", "0.3"]


def test_the_seed_is_that_of_the_key_that_holds_it(shown, config):
    config.write_text("train: {seed: 5}\n")
    assert shown("--seed-key", "train.seed")["SEED"] == "5"
    assert shown()["SEED"] == "0"


def test_an_attempt_is_counted_at_every_start_of_the_same_run(shown):
    for attempt in ("1", "2", "3"):
        assert shown("--", "fail", code=1)["ATTEMPT"] == attempt
    assert json.loads(shown.run.provenance_file.read_text())["attempt"] == 3


def test_a_finished_job_runs_again_beside_the_first_run(shown, tmp_path):
    first = shown()
    again = [shown("--again") for _ in range(2)]
    folders = [known["RUN_FOLDER"] for known in (first, *again)]
    assert folders[1:] == [f"{folders[0]}-run2", f"{folders[0]}-run3"]
    shown()
    assert "nothing to do" in shown.done.stderr
    recorded = json.loads(shown.run.provenance_file.read_text())
    assert recorded["again"] == 2


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--cwd", "run", "--seed-key", "KEY"),
        ("--overrides", "file", "KEY", "2", "--metric-pattern", r"--loss (\S+)"),
        ("--name", "mine"),
        ("--again",),
    ],
)
def test_the_command_that_show_prints_finds_the_same_run(shown, config, words):
    if "--again" in words:
        shown()
    shown(*words, name="mine" if "mine" in words else "job")
    for _ in range(2):
        page = run_zoerefine("/", "show", shown.run.path.resolve()).stdout
        command = page.split("launched with:\n")[1].splitlines()[0].strip()
        done = run_program(f"{sys.executable} -m {command}", shell=True, cwd="/")
        assert "nothing to do" in done.stderr, (command, done.stderr)
        assert done.stdout.strip() == str(shown.run.path.resolve())
        config.unlink(missing_ok=True)  # then the run's own copy serves


@pytest.mark.parametrize("command", ["train", "search", "check", "profile", "config"])
def test_our_own_commands_take_their_config_by_its_older_name(script, tmp_path, command):
    (tmp_path / "mine.yaml").write_text("TRAIN: {LT: 1}\n")
    done = script(command, "--cfg_path", "mine.yaml", code=2)
    assert "mine.yaml:1: no config key TRAIN.LT" in done.stderr
