"""Messages: --quiet hides them, but no warning and no error."""

from tests.foreign import commit_files
from tests.processes import run_zoerefine
from zoerefine.base.run_dir import RunDir


def test_a_quiet_training_prints_its_folder_and_warnings_only(tiny, script):
    done = script("train", "--config", tiny, "--quiet")
    run = RunDir(tiny.parent / done.stdout.strip())
    assert run.status().state == "finished"
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines()), done.stderr
    log = run.log_file.read_text()
    assert "epoch 2/2" in log and "test scene" in log  # the log has what was hidden


def test_a_quiet_command_prints_its_error(tiny, script):
    done = script("train", "--config", tiny, "--quiet", "TRAIN.LR", "fast", code=2)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: command line: TRAIN.LR must be")


def test_a_quiet_launch_prints_no_output_of_its_job_but_its_error(tmp_path):
    repo = tmp_path / "repo"
    job = "print('said by the job')\nraise ValueError('broken')\n"
    commit_files(repo, {"job.py": job, "any.yaml": "{}\n"})
    words = ["--repo", repo, "--commit", "HEAD", "--config", repo / "any.yaml", "--quiet"]
    words += ["--module", "job.py", "--home", tmp_path / "home", "--runs", tmp_path / "runs"]
    done = run_zoerefine(tmp_path, "run", *words, code=1)
    (error,) = done.stderr.splitlines()
    assert error.startswith("error: ValueError: broken; see ")
    assert "said by the job" not in done.stdout
    run = RunDir(next(tmp_path.glob("runs/any/*-*")))
    assert "said by the job" in run.log_file.read_text()
