"""Configs that include files beside them, as fvcore's, detectron2's and MMLab's do."""

import json
import sys

import pytest

from tests.foreign import commit_files, write_files
from tests.processes import run_program

# Reads `_BASE_` as fvcore does, and prints what it got.
FVCORE = """
import argparse, json, os
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config-file")
parser.add_argument("words", nargs="*")
args = parser.parse_args()


def load(file):
    tree = yaml.safe_load(open(file))
    base = tree.pop("_BASE_", None)
    return {**(load(os.path.join(os.path.dirname(file), base)) if base else {}), **tree}


cfg = load(args.config_file)
for key, value in zip(args.words[::2], args.words[1::2]):
    assert key in cfg, key
    cfg[key] = yaml.safe_load(value)
print("got", json.dumps(cfg, sort_keys=True))
print("loss", (cfg["LR"] - 0.1) ** 2 + cfg["DEPTH"] + cfg.get("SEED", 0) / 100)
"""
YAML_FILES = {
    "fit.py": FVCORE,
    "configs/small.yaml": "_BASE_: ../base/common.yaml\nDEPTH: 2\n",
    "base/common.yaml": "_BASE_: seeds.yaml\nLR: 0.5\nDEPTH: 1\n",
    "base/seeds.yaml": "SEED: 4\n",
}
# Reads a config in Python with `_base_` as MMLab does; it is the first word.
MMLAB = """
import argparse, os, runpy
parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("--cfg-options", nargs="+", default=[])
args = parser.parse_args()


def load(file):
    tree = {k: v for k, v in runpy.run_path(file).items() if k[:2] != "__"}
    bases, found = tree.pop("_base_", []), {}
    for base in [bases] if isinstance(bases, str) else bases:
        found |= load(os.path.join(os.path.dirname(file), base))
    return found | tree


cfg = load(args.config)
cfg |= {key: float(value) for key, value in (word.split("=") for word in args.cfg_options)}
print("work_dir", os.path.splitext(os.path.basename(args.config))[0])
print("loss", (cfg["lr"] - 0.1) ** 2 + cfg["depth"] + cfg["seed"] / 100)
"""
PYTHON_FILES = {
    "tools/train.py": MMLAB,
    "configs/resnet/r18.py": "_base_ = ['../_base_/schedule.py']\ndepth = 18\n",
    "configs/_base_/schedule.py": "lr, seed = 0.5, 0\n",
}
PATTERN = r"--metric-pattern=loss (\S+)"
FIT = ["--module", "fit.py", "--config-flag=--config-file", PATTERN]


@pytest.fixture
def code(tmp_path):
    return commit_files(tmp_path / "code", YAML_FILES)


def job(config="code/configs/small.yaml"):
    return ["--repo", "code", "--commit", "HEAD", *FIT, "--config", config]


def run_of(done):
    return done.stdout.splitlines()[-1]


def got(tmp_path, run):
    text = (tmp_path / run / "log.txt").read_text()
    return json.loads(text.partition("got ")[2].splitlines()[0])


def loss(tmp_path, run):
    return float((tmp_path / run / "log.txt").read_text().rpartition("loss ")[2])


def by_hand(tmp_path, *words):
    done = run_program([sys.executable, *words], cwd=tmp_path / "code")
    return float(done.stdout.rpartition("loss ")[2])


# A config of the working tree, or of the commit alone.
@pytest.mark.parametrize("config", ["code/configs/small.yaml", "configs/small.yaml"])
def test_bases_of_the_commit_are_found(code, command, tmp_path, config):
    run = run_of(command("run", *job(config), "LR", "0.2"))
    assert got(tmp_path, run) == {"DEPTH": 2, "LR": 0.2, "SEED": 4}
    expected = by_hand(tmp_path, "fit.py", "--config-file", "configs/small.yaml", "LR", "0.2")
    assert loss(tmp_path, run) == expected
    # The workspace is the commit's again: a second run uses it.
    second = run_of(command("run", *job(config), "LR", "0.3"))
    assert (tmp_path / second / "left.json").read_text().count('"path"') == 0
    places = [json.loads((tmp_path / one / "provenance.json").read_text())["workspace"]
              for one in (run, second)]  # fmt: skip
    assert places[0] == places[1]
    command("reproduce", second)


def test_values_are_merged_into_the_config_at_its_place(code, command, tmp_path):
    words = ["--overrides", "file", "--seeds", "1,2", "DEPTH", "7", "LR", "0.2"]
    command("run", *job(), *words)
    runs = sorted((tmp_path / "runs/small").glob("*-*"))
    assert [got(tmp_path, run) for run in runs] in (
        [{"DEPTH": 7, "LR": 0.2, "SEED": seed} for seed in order] for order in ([1, 2], [2, 1])
    )
    assert all(json.loads((run / "left.json").read_text())["files"] == [] for run in runs)
    command("reproduce", runs[0])
    seeds = {json.loads((run / "provenance.json").read_text())["hash_seed"] for run in runs}
    assert seeds == {1, 2}
    done = command("run", *job(), "--overrides", "file", "DEPHT", "7", code=2)
    assert "did you mean DEPTH?" in done.stderr


def test_an_included_file_that_the_commit_does_not_have_is_copied(code, command, tmp_path):
    (code / "base/own.yaml").write_text("_BASE_: common.yaml\nLR: 0.25\n")
    (code / "configs/mine.yaml").write_text("_BASE_: ../base/own.yaml\nDEPTH: 3\n")
    done = command("run", *job("code/configs/mine.yaml"))
    run = run_of(done)
    assert "base/own.yaml" not in done.stderr  # it is no file that the job lacks
    assert got(tmp_path, run) == {"DEPTH": 3, "LR": 0.25, "SEED": 4}
    assert json.loads((tmp_path / run / "left.json").read_text())["files"] == []
    (code / "base/own.yaml").write_text("_BASE_: common.yaml\nLR: 0.75\n")
    again = run_of(command("run", *job("code/configs/mine.yaml")))
    assert again != run and got(tmp_path, again)["LR"] == 0.75
    command("reproduce", run)
    assert got(tmp_path, f"{run}-again1")["LR"] == 0.25


def test_a_config_outside_of_the_repository_brings_its_files(code, command, tmp_path):
    absolute = tmp_path / "mine/base/common.yaml"
    files = {name: YAML_FILES[name] for name in ("base/common.yaml", "base/seeds.yaml")}
    files["exp/a.yaml"] = "_BASE_: ../base/common.yaml\nDEPTH: 5\n"
    files["exp/b.yaml"] = f"_BASE_: {absolute}\nDEPTH: 6\n"
    write_files(tmp_path / "mine", files)
    a, b = (run_of(command("run", *job(f"mine/exp/{name}.yaml"))) for name in "ab")
    assert got(tmp_path, a) == {"DEPTH": 5, "LR": 0.5, "SEED": 4}
    assert got(tmp_path, b) == {"DEPTH": 6, "LR": 0.5, "SEED": 4}
    absolute.write_text("LR: 1\n")
    command("reproduce", a)
    assert f"{absolute} is not what was recorded" in command("reproduce", b, code=2).stdout


def test_keys_of_included_files_are_searched(code, command, tmp_path):
    space = ["--search", "LR=[0.2, 0.3]", "--search", "SEED=[0, 1]", "--grid", "--workers", "2"]
    command("search", *job(), "--metric", "loss", *space, "--name", "s")
    trials = sorted((tmp_path / "runs/s/study/trials").glob("000?"))
    assert len(trials) == 4
    assert {(got(tmp_path, one)["LR"], got(tmp_path, one)["SEED"]) for one in trials} == {
        (lr, seed) for lr in (0.2, 0.3) for seed in (0, 1)
    }
    command("reproduce", trials[0])
    best = "runs/s/study/best.yaml"
    assert got(tmp_path, run_of(command("run", *job(best))))["LR"] == 0.2
    done = command(
        "search", *job(), "--metric", "loss", "--search", "LRR=[1]", "--name", "t", code=2
    )
    assert "the config has no key LRR" in done.stderr


def test_configs_in_python_are_launched_and_searched_at_their_place(command, tmp_path):
    commit_files(tmp_path / "code", PYTHON_FILES)
    words = ["--repo", "code", "--commit", "HEAD", "--module", "tools/train.py", PATTERN]
    words += ["--config", "configs/resnet/r18.py", "--config-flag=", "--overrides", "assignments"]
    run = run_of(command("run", *words, "lr", "0.2", "--", "--cfg-options"))
    assert "work_dir r18" in (tmp_path / run / "log.txt").read_text()
    hand = ["tools/train.py", "configs/resnet/r18.py", "--cfg-options", "lr=0.2"]
    assert loss(tmp_path, run) == by_hand(tmp_path, *hand)
    command("reproduce", run)
    space = ["--metric", "loss", "--search", "lr=[0.3, 0.1]", "--grid"]
    done = command("search", *words, *space, "--", "--cfg-options")
    assert "best loss 18" in " ".join(done.stderr.split())


# Merges BASE as Swin Transformer does, and reads its data beside the config.
SWIN = """
import os, sys, yaml
place = os.path.dirname(sys.argv[1])
cfg = yaml.safe_load(open(sys.argv[1]))
for base in cfg.get("BASE", []):
    cfg = {**yaml.safe_load(open(os.path.join(place, base))), **cfg}
print("loss", cfg["LR"] + float(open(os.path.join(place, cfg["DATA"])).read()))
"""


def test_files_that_other_keys_name_are_found(command, tmp_path):
    files = {"main.py": SWIN, "data/x.csv": "1", "configs/base.yaml": "LR: 0.5\n"}
    plain = "DATA: ../../data/x.csv\nLR: 0.25\n"
    files |= {
        "configs/a/plain.yaml": plain,
        "configs/a/base.yaml": f"BASE: [../base.yaml]\n{plain}",
    }
    files["configs/a/inner.yaml"] = "BASE: [../base.yaml]\nDATA: ../../data/x.csv\n"
    commit_files(tmp_path / "code", files)
    words = ["--repo", "code", "--commit", "HEAD", "--module", "main.py", "--config-flag=", PATTERN]
    for name in ("plain", "base"):
        run = run_of(command("run", *words, "--config", f"code/configs/a/{name}.yaml"))
        assert loss(tmp_path, run) == 1.25
    words += ["--config", "code/configs/a/inner.yaml", "--overrides", "file"]
    assert loss(tmp_path, run_of(command("run", *words, "LR", "2"))) == 3
    space = ["--metric", "loss", "--search", "LR=[3, 4]", "--grid", "--workers", "1"]
    assert "best loss 4" in " ".join(command("search", *words, *space).stderr.split())
