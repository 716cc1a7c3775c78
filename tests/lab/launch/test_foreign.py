"""Scripts of other projects, launched without changing a line of them."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.foreign import KINDS, Gate
from tests.lab.launch.conftest import SCRIPT
from tests.processes import killed_at_end, run_program, run_zoerefine, zoerefine_command
from zoerefine.base.run_dir import RunDir


@pytest.fixture
def run_foreign(tmp_path, home):
    """Launch in a folder of the user's: run_foreign(repository, *words) -> finished process."""
    user = tmp_path / "user"
    user.mkdir()
    with killed_at_end() as start:

        def run(repository, *words, background=False, code=0):
            words = ["run", *repository.job(), *words]
            run.run = RunDir(user / "runs" / Path(repository.config).stem / "latest")
            if background:
                return start(zoerefine_command(*words), cwd=user)
            return run_zoerefine(user, *words, code=code)

        run.user = user
        yield run


@pytest.mark.parametrize("kind", KINDS)
def test_a_launch_gives_the_number_that_the_script_gives_by_hand(
    foreign_repository, run_foreign, tmp_path, kind
):
    repository = foreign_repository(kind)
    by_hand = repository.run_by_hand(tmp_path / "by hand", lr=0.03, seed=2, epochs=3)
    words = repository.set(lr=0.03, seed=2, epochs=3)
    run_foreign(repository, "--cwd", "caller", *words)
    assert repository.final(run_foreign.user) == by_hand


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_in_the_workspace_are_collected_and_survive_clean(
    foreign_repository, run_foreign, tmp_path, kind
):
    repository = foreign_repository(kind)
    by_hand = repository.run_by_hand(tmp_path / "by hand", epochs=3)
    words = repository.set(epochs=3)
    run_foreign(repository, *words)
    run_zoerefine(tmp_path, "run", "--clean", "--yes")
    assert not list((tmp_path / "home").glob("workspaces/*/*/"))
    left = run_foreign.run.left
    assert repository.final(left) == by_hand
    listed = {one["path"] for one in json.loads(run_foreign.run.left_file.read_text())["files"]}
    assert listed == {p.relative_to(left).as_posix() for p in left.rglob("*") if p.is_file()}
    done = run_foreign(repository, *words)
    assert "nothing to do" in done.stderr
    assert repository.final(left) == by_hand


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_job_finds_its_checkpoints_again_and_ends_with_the_same_number(
    foreign_repository, run_foreign, tmp_path, wait_until, monkeypatch, kind
):
    repository = foreign_repository(kind)
    words = repository.set(epochs=6)
    by_hand = repository.run_by_hand(tmp_path / "by hand", epochs=6)
    gate = Gate(tmp_path, monkeypatch)
    for number in (signal.SIGINT, signal.SIGKILL):
        running = run_foreign(repository, *words, background=True)
        wait_until(gate.waiting, running)
        running.send_signal(number)
        running.communicate()
        gate.waiting()  # what the script of this attempt said last
    gate.open()
    run_foreign(repository, *words)
    assert repository.final(run_foreign.run.left) == by_hand
    assert json.loads(run_foreign.run.provenance_file.read_text())["attempt"] == 3
    if kind == "plain_prints":  # no epoch was trained twice
        epochs = re.findall(r"^epoch (\d)", run_foreign.run.log_file.read_text(), re.MULTILINE)
        assert epochs == list("123456")


def test_two_runs_of_one_commit_keep_what_they_left_apart(foreign_repository, run_foreign):
    repository = foreign_repository("plain_prints")
    finals = []
    for seed in (1, 2):
        run_foreign(repository, *repository.set(seed=seed))
        finals.append((run_foreign.run.path.resolve(), repository.final(run_foreign.run.left)))
    assert finals[0][1] != finals[1][1]
    for run, final in finals:
        assert repository.final(run / "left") == final


def test_a_job_that_fails_leaves_its_files_in_the_run(foreign_repository, run_foreign):
    repository = foreign_repository("argparse_csv")
    run_foreign(repository, *repository.set(lr=-1), code=1)
    assert (run_foreign.run.left / "results" / "log.csv").read_text().startswith("epoch,")
    assert run_foreign.run.status().state == "failed"


def test_the_first_launchers_shell_loop_works(foreign_repository, home, tmp_path):
    repository = foreign_repository("yacs_tensorboard")
    configs = []
    for lr in (0.02, 0.05):
        configs.append(tmp_path / f"lr{lr}.yaml")
        text = (repository.folder / repository.config).read_text()
        configs[-1].write_text(text.replace("LR: 0.1", f"LR: {lr}").replace("output", f"out{lr}"))
    loop = f"""
    for config in {configs[0]} {configs[1]}; do
        {sys.executable} {SCRIPT} --repo_url {repository.folder} --branch_name main \\
            --commit_hash {repository.commit} --cfg_path $config --cfg_path_arg_name=cfg \\
            --copies_base_path copies --module_path {repository.script} || exit 1
    done
    """
    user = tmp_path / "user"
    user.mkdir()
    for _ in range(2):
        run_program(loop, shell=True, cwd=user)
    # As their users expect: the outputs are in the folder that they called from.
    finals = {lr: float((user / f"out{lr}" / "model.txt").read_text()) for lr in (0.02, 0.05)}
    for lr, final in finals.items():
        assert final == repository.run_by_hand(tmp_path / f"by hand {lr}", lr=lr)
    assert (user / "copies" / "workspaces").is_dir()
