"""Scripts that take their settings as options, or their config as the first argument."""

import json
import sys

import pytest

from tests.processes import run_program, run_zoerefine
from zoerefine.base.run_dir import RunDir

SCRIPT = """
import argparse, json, os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("file", nargs="?")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()  # refuses everything else
Path("output").mkdir()
Path("output", "log.csv").write_text(f"epoch,val_acc\\n1,{1 - args.lr + args.seed / 1000}\\n")
run = Path(os.environ["ZOEREFINE_RUN_FOLDER"])
if args.file:
    (run / "config.txt").write_text(Path(args.file).read_text())
(run / "known.json").write_text(json.dumps(vars(args) | {"env": os.environ["ZOEREFINE_SEED"]}))
"""


@pytest.fixture
def zoerefine(repository, tmp_path, home):
    """Run a command in the user's folder: zoerefine("run", *words) -> finished process."""
    (repository.folder / "fit.py").write_text(SCRIPT)
    commit = repository.commit("a script with options")
    job = ["--repo", repository.folder, "--commit", commit, "--module", "fit.py"]

    def call(verb, *words, code=0):
        job_words = job if verb == "run" else []
        return run_zoerefine(tmp_path, verb, *job_words, *words, code=code)

    return call


def runs_in(folder):
    return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]


def known(folder):
    return json.loads((folder / "known.json").read_text())


def test_a_script_without_config_gets_key_value_words_as_options(zoerefine, tmp_path):
    zoerefine("run", "lr", "-0.002")
    run = RunDir(tmp_path / "runs" / "fit" / "latest")
    assert known(run.path)["lr"] == -0.002
    assert "nothing to do" in zoerefine("run", "lr", "-0.002").stderr
    shown = zoerefine("show", run.path).stdout
    assert "/dev/null" not in shown
    printed = shown.split("launched with:\n")[1].splitlines()[0].split()
    assert "--config" not in printed
    assert "nothing to do" in run_program([sys.executable, "-m", *printed]).stderr
    assert "REPRODUCED" in zoerefine("reproduce", run.path).stdout


def test_seeds_reach_an_option(zoerefine, tmp_path):
    done = zoerefine("run", "--seeds", "0:3", "--parallel", "2", "--seed-key", "seed", "lr", "0.5")
    runs = runs_in(tmp_path / "runs" / "fit")
    found = sorted((known(run)["seed"], known(run)["env"], known(run)["lr"]) for run in runs)
    assert found == [(seed, str(seed), 0.5) for seed in range(3)]
    assert "fit.py seed 2" in done.stderr
    zoerefine("analyze", "runs", "--out", "report")
    groups = (tmp_path / "report" / "groups.csv").read_text().splitlines()
    assert len(groups) == 2
    assert groups[1].startswith("fit.py,3,3,0.501") or ",3,3,0.501" in groups[1]


def test_options_beside_a_config_and_words_are_other_jobs(zoerefine, tmp_path):
    (tmp_path / "fit.yaml").write_text("# nothing yet\n")
    words = ("--config", "fit.yaml", "--config-flag", "")
    zoerefine("run", *words, "--overrides", "options", "lr", "0.3")
    run = RunDir(tmp_path / "runs" / "fit" / "latest")
    assert known(run.path)["lr"] == 0.3
    assert (run.path / "config.txt").read_text() == "# nothing yet\n"
    zoerefine("run", *words, "lr", "0.3", code=2)  # the script's own refusal
    assert run.status().state == "failed"
    runs = runs_in(tmp_path / "runs" / "fit")
    assert len(runs) == 2


def test_show_says_that_a_path_does_not_exist(zoerefine):
    done = zoerefine("show", "runs/absent", code=2)
    assert done.stderr.startswith("error: runs/absent does not exist")


def test_there_is_no_config_to_merge_into(zoerefine, tmp_path):
    done = zoerefine("run", "--overrides", "file", "lr", "0.3", code=2)
    assert done.stderr == "error: there is no config to merge KEY VALUE into: give --config FILE\n"
    assert not (tmp_path / "runs").exists()
