"""The wheel, without a checkout: every command works from an empty folder."""

import os
from pathlib import Path

import pytest

from tests.processes import run_program
from zoerefine.base.run_dir import RunDir
from zoerefine.cli import COMMANDS

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture
def wheel(installed, tmp_path):
    """Run a command of the installed wheel in an empty folder: wheel("config", "TRAIN")."""

    def run(*words, code=0, **variables):
        command, env = [installed / "zoerefine", *map(str, words)], run.environment | variables
        return run_program(command, code, cwd=tmp_path, env=env)

    run.environment = os.environ | {"PYTHONPATH": "", "ZOEREFINE_HOME": str(tmp_path / "home")}
    return run


def test_every_command_has_its_help(wheel):
    for name in COMMANDS:
        assert wheel(name, "--help").stderr == "", name


def test_example_configs_come_with_the_wheel(wheel, tmp_path):
    shipped = wheel("config", "--example", "demo")
    assert shipped.stdout == (CHECKOUT / "configs" / "demo.yaml").read_text()
    for name in ("demo", "configs/demo.yaml", "compare/unet"):
        wheel("config", "--config", name, "MODEL.NAME")
    wrong = wheel("config", "--example", "dmeo", code=2)
    assert wrong.stderr.startswith("error: no example config dmeo; there are compare/guided, ")
    (tmp_path / "demo").write_text("RUN: {NAME: mine}\n")
    assert "mine" in wheel("config", "--config", "demo", "RUN").stdout


def test_training_and_the_rest_need_no_checkout(wheel, tmp_path):
    wheel("data", "synthesize", "data/synthetic", "--scenes", 8, "--clips", 1, "--frames", 2,
          "--height", 120, "--width", 160)  # fmt: skip
    wheel("search", "--config", "demo", "--plan", "DATA.ROOT", "data/synthetic")
    (tmp_path / ".git").mkdir()  # somebody's repository is not ours
    words = ("DATA.ROOT", "data/synthetic", "TRAIN.EPOCHS", 1, "MODEL.BASE", 8)
    wheel("train", "--config", "demo", *words)
    run = RunDir(tmp_path / "runs" / "demo" / "latest")
    assert run.read_json(run.provenance_file)["commit"] == ""


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (("dashboard", "."), "optuna_dashboard"),
        (("data", "inspect", "world", "--picture", "a.png"), "matplotlib"),
    ],
)
def test_a_missing_package_is_one_line(words, package, wheel, installed, tmp_path):
    wheel("data", "synthesize", "world", "--scenes", 1, "--clips", 1, "--frames", 1)
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    text = f"raise ModuleNotFoundError('none', name='{package}')"
    (blocked / f"{package}.py").write_text(text)
    done = wheel(*words, code=2, PYTHONPATH=str(blocked))
    advice = f"has no package {package}: `pip install zoerefine` installs what is missing"
    assert done.stderr.endswith(f"error: {installed / 'python'} {advice}\n")
