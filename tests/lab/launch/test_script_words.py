"""Scripts that take KEY=VALUE words, as Hydra's do, and scripts with positional words."""

import json
import shlex
import sys

import pytest

from tests.foreign import commit_files
from tests.processes import run_program
from tests.tables import csv_rows

HYDRA_SCRIPT = """
import csv
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    loss = (cfg.optim.lr - 0.1) ** 2 + cfg.seed / 100 + (cfg.net.name == "b")
    out = Path(HydraConfig.get().runtime.output_dir)
    with open(out / "log.csv", "w", newline="") as file:
        csv.writer(file).writerows([["epoch", "loss"], [1, loss + 1], [2, loss]])


main()
"""
HYDRA = {
    "train.py": HYDRA_SCRIPT,
    "conf/config.yaml": "defaults:\n  - net: a\n  - _self_\nseed: 0\noptim:\n  lr: 0.5\n",
    "conf/net/a.yaml": "name: a\n",
    "conf/net/b.yaml": "name: b\n",
}
WORDS = """
import json, sys
print("words", json.dumps(sys.argv[1:]))
print("score", sum(float(word) for word in sys.argv[1:] if word[0].isdigit()))
"""


@pytest.fixture
def hydra_job(tmp_path):
    """The options of a job with Hydra."""
    pytest.importorskip("hydra", reason="Hydra is not installed: pip install hydra-core")
    commit_files(tmp_path / "code", HYDRA)
    job = ["--repo", "code", "--commit", "HEAD", "--module", "train.py", "--seed-key", "seed"]
    return [*job, "--overrides", "assignments"]


@pytest.fixture
def words_job(tmp_path):
    """The options of a job whose script prints its words."""
    commit_files(tmp_path / "code", {"fit.py": WORDS})
    job = ["--repo", "code", "--commit", "HEAD", "--module", "fit.py"]
    return [*job, r"--metric-pattern=score (\S+)"]


def by_hand(tmp_path, *words):
    """The loss that a hand-run script of Hydra gives."""
    folder = tmp_path / "hand"
    command = [sys.executable, str(tmp_path / "code/train.py"), f"hydra.run.dir={folder}", *words]
    run_program(command, cwd=tmp_path)
    return float((folder / "log.csv").read_text().split(",")[-1])


def run_in(done):
    return done.stdout.splitlines()[-1]


def words_of(run):
    return json.loads(run.joinpath("log.txt").read_text().partition("words ")[2].splitlines()[0])


def test_seeds_and_values_reach_hydra(hydra_job, command, tmp_path):
    command("run", *hydra_job, "--seeds", "1,2", "optim.lr", "0.2", "net", "b")
    command("analyze", "runs/train", "--out", "report", "--metric", "loss")
    rows = csv_rows(tmp_path / "report/runs.csv")
    losses = {row["seed"]: float(row["loss"]) for row in rows}
    expected = {s: by_hand(tmp_path, "optim.lr=0.2", "net=b", f"seed={s}") for s in ("1", "2")}
    assert losses == expected
    command("reproduce", rows[0]["path"])


def test_hydras_config_is_read_as_settings(hydra_job, command, tmp_path):
    for net in ("a", "b"):
        command("run", *hydra_job, "net", net)
    command("run", *hydra_job, "net", "b", "optim", "{lr: 0.25}")
    command("analyze", "runs/train", "--out", "report", "--where", "optim.lr==0.5")
    assert len(csv_rows(tmp_path / "report/groups.csv")) == 2
    command("analyze", "runs/train", "--out", "report", "--where", "net.name=='b' and net=='b'")
    rows = csv_rows(tmp_path / "report/runs.csv")
    assert sorted(row["optim.lr"] for row in rows if row["state"] == "finished") == ["0.25", "0.5"]


def test_a_search_of_hydra_gives_the_numbers_of_the_script_by_hand(hydra_job, command, tmp_path):
    space = ["--search", "optim.lr=[0.2, 0.3]", "--search", "net=[a, b]", "--grid"]
    done = command("search", *hydra_job, "--metric", "loss", *space, "seed", "1")
    assert "4 of 4 trials ended (best loss" in " ".join(done.stderr.split())
    best = by_hand(tmp_path, "optim.lr=0.2", "net=a", "seed=1")
    assert f"loss {best:.4g}" in done.stderr
    assert "--overrides=assignments" in done.stderr


def test_positional_words_get_values_and_seeds(words_job, command, tmp_path):
    words = ["--seed-key", "seed", "--seeds", "3,4", "alpha", "0.5", "depth", "2"]
    command("run", *words_job, *words, "--", "{alpha}", "x", "s{seed}")
    found = sorted(words_of(path) for path in (tmp_path / "runs/fit").glob("*-*"))
    assert found == [["0.5", "x", "s3", "--depth=2"], ["0.5", "x", "s4", "--depth=2"]]


def test_positional_words_are_searched(words_job, command, tmp_path):
    space = ["--search", "alpha=[0.5, 0.25]", "--search", "l1_ratio=[1.0]", "--grid"]
    job = ["search", *words_job, "--metric", "score", *space]
    done = command(*job, "--", "{alpha}", "{l1_ratio}")
    trials = sorted((tmp_path / "runs/fit/study/trials").iterdir())
    assert sorted(words_of(path) for path in trials) == [["0.25", "1.0"], ["0.5", "1.0"]]
    assert "best score 1.25" in done.stderr
    command("reproduce", trials[0])


def test_keys_of_a_script_without_a_config_are_searched_as_arguments(words_job, command, tmp_path):
    words = ["--overrides", "arguments", "--search", "LR=[0.5, 0.25]", "--grid"]
    done = command("search", *words_job, "--metric", "score", *words)
    trials = (tmp_path / "runs/fit/study/trials").iterdir()
    assert sorted(words_of(path) for path in trials) == [["LR", "0.25"], ["LR", "0.5"]]
    assert "--overrides=arguments" in done.stderr


def test_the_config_stands_where_the_words_say(words_job, command, tmp_path):
    """Lightning's command line: main.py fit --config FILE --trainer.max_epochs=2."""
    (tmp_path / "fit.yaml").write_text("seed: 1\n")
    words = ["lr", "0.25", "--", "fit", "--config={config}"]
    done = command("run", *words_job, "--config", "fit.yaml", "--overrides", "options", *words)
    run = tmp_path / done.stdout.splitlines()[-1]
    assert words_of(run) == ["fit", f"--config={run / 'input.yaml'}", "--lr=0.25"]


PARAMS_SCRIPT = """
import json, sys
import yaml
params = yaml.safe_load(open("params.yaml"))
assert not sys.argv[1:], sys.argv
json.dump({"loss": (params["train"]["lr"] - 0.1) ** 2 + params["seed"]}, open("metrics.json", "w"))
"""


def test_a_script_that_reads_its_config_unasked_gets_values_and_seeds(command, tmp_path):
    """DVC's params.yaml: the script takes no words."""
    params = "seed: 0\ntrain:\n  lr: 0.5  # tuned\n"
    commit_files(tmp_path / "code", {"train.py": PARAMS_SCRIPT, "params.yaml": params})
    job = ["--repo", "code", "--commit", "HEAD", "--module", "train.py", "--seed-key", "seed"]
    job += ["--config", "params.yaml", "--overrides", "in-place"]
    command("run", *job, "--seeds", "0:3", "train.lr", "0.25")
    command("analyze", "runs/params", "--out", "report", "--metric", "loss")
    losses = {row["seed"]: float(row["loss"]) for row in csv_rows(tmp_path / "report/runs.csv")}
    assert losses == {str(seed): 0.15**2 + seed for seed in range(3)}

    search = [*job, "--name", "s", "--metric", "loss", "--search", "train.lr=[0.25, 0.75]"]
    done = command("search", *search, "--trials", "2")
    (best,) = [line for line in done.stdout.splitlines() + done.stderr.splitlines()
               if line.startswith("best again: ")]  # fmt: skip
    done = command(*shlex.split(best)[3:])
    assert '"loss": 0.0225' in (tmp_path / run_in(done) / "left/metrics.json").read_text()
    done = command("reproduce", next((tmp_path / "runs/s/study/trials").glob("0*")))
    assert "REPRODUCED: 2 values" in done.stdout, done.stderr

    (tmp_path / "p.yaml").write_text(params)
    done = command("run", *job[:-3], tmp_path / "p.yaml", "--overrides", "in-place", code=2)
    assert "--overrides in-place: " in done.stderr


def test_a_queue_shows_the_named_metric_and_ends_at_the_first_failure(words_job, command):
    words = ["--seed-key", "seed", "--seeds", "1,2,3", "--", "{seed}", "7"]
    assert "score 8" in command("run", *words_job, "--metric", "score", *words).stderr
    failing = [*words_job[:-1], "--fail-fast", "--seed-key", "seed", "--seeds", "1,2", "--", ""]
    done = command("run", *failing, code=1)
    assert done.stderr.count("failed  ") == 1, done.stderr
    assert "seed 2" not in done.stderr  # it is not started


def test_a_script_in_a_subfolder_is_suggested(command, tmp_path):
    commit_files(tmp_path / "code", {"tools/deep/fit.py": WORDS, "tools/other.py": WORDS})
    done = command("run", "--repo", "code", "--commit", "HEAD", "--module", "fit.py", code=2)
    assert "the commit has no script fit.py: did you mean tools/deep/fit.py?" in done.stderr


def test_the_list_shows_the_metric_that_the_runs_share(words_job, command):
    command("run", *words_job, "--", "7")
    lines = command("runs").stdout.splitlines()
    assert lines[0].split()[3] == "score" and lines[1].split()[5] == "7", lines
    assert command("runs", "--metric", "val.acc").stdout.splitlines()[0].split()[3] == "acc"
