"""Nothing that a training computes is refused on a GPU in strict mode: checked without a GPU."""

import sys
from pathlib import Path

import pytest
import torch

from tests.cpp_library import compiled_library
from tests.depth.training.strict_mode import REFUSED, StrictCuda, documented
from tests.processes import run_program
from zoerefine.base.errors import UserError
from zoerefine.base.machine.device import DTYPES
from zoerefine.base.registries import LOSS_TERMS, NETWORKS
from zoerefine.depth.training.failures import explained_failures

ROOT = Path(__file__).resolve().parents[3]

EVERY_TERM = "[" + ", ".join(f"{{name: {name}, weight: 1.0}}" for name in LOSS_TERMS) + "]"
AUGMENT = [
    word
    for name, value in {
        "FLIP": 0.5, "CROP": 0.2, "COLOR": 0.2, "PSEUDO_SCALE": 0.1, "DEPTH_SCALE": 0.1,
        "CUTOUT": 0.5,
    }.items()
    for word in (f"AUGMENT.{name}", value)
]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["MODEL.POINTS", "true"],
        ["LOSS.TERMS", EVERY_TERM, *AUGMENT],
        ["MODEL.NAME", "unet", "MODEL.BASE", 8],
        ["MODEL.NAME", "guided", "MODEL.CONFIDENCE", "false"],
    ],
    ids=["default", "points", "every loss and augmentation", "unet", "without confidence"],
)
def test_no_operation_of_a_whole_training_is_refused(train, words):
    with StrictCuda():
        run = train("TRAIN.EPOCHS", 1, *words)
    assert run.results()["val"]["refined_points"]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("points", ["true", "false"])
def test_on_fake_gpu_tensors_nothing_is_refused_or_mixed(tiny, request, network, points):
    """In every precision: devices and alerts are torch's own."""
    guard = Path(__file__).with_name("cuda_guard.cpp")
    library = "" if torch.version.cuda else compiled_library(guard, request.config.cache)
    words = "MODEL.NAME", network, "MODEL.BASE", 8, "MODEL.POINTS", points
    options = *words, "LOSS.TERMS", EVERY_TERM, *AUGMENT
    program = [sys.executable, "-W", "ignore", "-m", "tests.depth.training.walk_on_fake_cuda"]
    done = run_program([*program, library, tiny, *options], cwd=ROOT)
    assert done.stdout.split() == list(DTYPES)


def test_the_table_has_all_that_the_installed_torch_documents():
    assert len(documented()) > 20
    assert documented() <= set(REFUSED)


def test_what_is_refused_is_found_in_forward_and_backward():
    values = torch.rand(1, 2, 8, 8, requires_grad=True)
    smaller = torch.nn.functional.adaptive_avg_pool2d(values, 3)
    with StrictCuda():
        with pytest.raises(RuntimeError, match="nanmedian does not have a deterministic"):
            values.nanmedian(1)
        with pytest.raises(RuntimeError, match="_adaptive_avg_pool2d_backward does not have"):
            smaller.sum().backward()
        with pytest.raises(RuntimeError, match="cumsum"):
            values.cumsum(1)
        values.median()
        torch.arange(3).cumsum(0)


def test_the_whole_name_of_a_refused_operation_is_in_the_error():
    torchs = "median CUDA with indices output does not have a deterministic implementation, but"
    expected = r"^median CUDA with indices output is not deterministic"
    with pytest.raises(UserError, match=expected), explained_failures():
        raise RuntimeError(torchs)
