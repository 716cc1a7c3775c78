"""A network outside this tree: found by its place, with options of its own, trained and loaded."""

import sys

import pytest
import torch

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.exporting.build import EngineBuilder
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.model import build_refiner
from zoerefine.depth.model.backbone import outside_digest, outside_files
from zoerefine.depth.training.checkpoint import load_refiner
from zoerefine.depth.training.job import run_training

NETWORK = '''
"""A network of a user."""

from torch import nn

from users_blocks import act
from zoerefine.depth.model.refiner import INPUTS, DepthHead


class Plain(nn.Module):
    stride = 1

    def __init__(self, base, kernel=3, *, dropout=0.0):
        super().__init__()
        self.layer = nn.Conv2d(INPUTS, base, kernel, padding=kernel // 2)
        self.drop = nn.Dropout(dropout)
        self.head = DepthHead(base)

    def forward(self, inputs):
        return self.head(self.drop(act(self.layer(inputs))))


class WithoutStride(nn.Module):
    pass


not_a_class = 3
'''


ACT = "def act(x):\n    return x.relu()\n"


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A module `users_network` in a temporary folder on the module search path."""
    path = tmp_path / "somewhere" / "users_network.py"
    path.parent.mkdir()
    path.write_text(NETWORK)
    (path.parent / "users_blocks.py").write_text("from parts.acts import act\n")
    for name, text in {"acts": "from .relu import *", "relu": ACT}.items():
        (path.parent / "parts").mkdir(exist_ok=True)  # a package without __init__.py
        (path.parent / "parts" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(path.parent))
    yield path
    for name in ("users_network", "users_blocks", "parts", "parts.acts", "parts.relu"):
        sys.modules.pop(name, None)


def model(name, **options):
    return {"NAME": name, "BASE": 4, "MAX_LOG": 1.0, "OPTIONS": options}


def test_a_network_outside_the_tree_is_trained_saved_and_loaded(outside, tiny):
    words = ["MODEL.NAME", "users_network:Plain", "TRAIN.STEPS", "1", "TRAIN.PRECISION", "fp32",
             "MODEL.OPTIONS", "{kernel: 5, dropout: 0.1}"]  # fmt: skip
    run = run_training(load_config(tiny, words))
    refiner = load_refiner(RunDir(run.path))
    assert refiner.backbone.layer.kernel_size == (5, 5)
    assert refiner.backbone.drop.p == 0.1
    rgb01, zoe_m = torch.rand(1, 3, 24, 32), torch.rand(1, 1, 24, 32) + 1
    assert not torch.equal(refiner(rgb01, zoe_m), zoe_m)
    known = run.read_json(run.provenance_file)["network"]
    assert known == {"name": "users_network:Plain", "sha256": outside_digest(known["name"])}
    names = ["parts/acts.py", "parts/relu.py", "users_blocks.py", "users_network.py"]
    assert outside_files(known["name"]) == [outside.parent / name for name in names]


def test_a_network_whose_files_have_changed_is_named_and_exported_anew(outside, tiny, capsys):
    words = ["MODEL.NAME", "users_network:Plain", "TRAIN.STEPS", "1", "TRAIN.PRECISION", "fp32"]
    cfg = load_config(tiny, words)
    run = run_training(cfg)
    kind = engine_kind("torchscript")
    path = EngineBuilder(RunDir(run.path)).path_of(kind, "fp32")
    (outside.parent / "parts/relu.py").write_text(ACT.replace("relu", "tanh"))
    run_training(cfg)
    assert "since then other: the files of users_network:Plain" in capsys.readouterr().err
    builder = EngineBuilder(RunDir(run.path))
    assert builder.path_of(kind, "fp32") != path
    assert builder.frames and "since the training other" in capsys.readouterr().err
    run.results_file.unlink()  # as if it were unfinished
    with pytest.raises(UserError, match="the digest of the network's files"):
        run_training(cfg)


def test_options_reach_the_constructor_and_default_without(outside):
    assert build_refiner(model("users_network:Plain")).backbone.layer.kernel_size == (3, 3)
    made = build_refiner(model("users_network:Plain", kernel=1))
    assert made.backbone.layer.kernel_size == (1, 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("users_network:Plain", {"kernal": 5}, r"MODEL\.OPTIONS.*'kernal'.*kernel=3, dropout=0\.0"),
        ("users_network:Missing", {}, r"network users_network:Missing cannot be imported.*Missing"),
        ("no_such_module:Net", {}, "No module named 'no_such_module'.*PYTHONPATH"),
        ("users_network:WithoutStride", {}, "needs an integer attribute `stride`"),
        ("users_network:not_a_class", {}, r"no subclass of torch\.nn\.Module"),
        ("small", {"depth": 3}, r"MODEL\.OPTIONS of small.*it has no options"),
    ],
)
def test_what_does_not_fit_is_one_sentence(outside, name, options, message):
    with pytest.raises(UserError, match=message):
        build_refiner(model(name, **options))


def test_a_module_that_fails_to_import_is_named_with_its_error(outside):
    outside.write_text("1 / 0\n")
    with pytest.raises(UserError, match="ZeroDivisionError: division by zero"):
        build_refiner(model("users_network:Plain"))
