"""Saved graphs name no device, so a bundle can be loaded on another one."""

import io
import zipfile

import pytest
import torch

from tests.depth.exporting.sources import untrained_source
from zoerefine.base.registries import NETWORKS
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.engines.torchscript_engine import jit_warnings_ignored

ENGINES = [
    ("torchscript", "fp32"), ("torchscript", "bf16"), ("torchscript", "fp16"),
    ("tensorrt-rtx", "fp16"),
]  # fmt: skip


def devices_in(content):
    """The lines of a TorchScript archive's code that name a device."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        code = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")]
    assert any("forward" in text or "before" in text for text in code)
    return [line for text in code for line in text.splitlines() if "torch.device(" in line]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("engine", "precision"), ENGINES)
def test_no_saved_graph_names_a_device(engine, precision, network):
    kind = engine_kind(engine)
    if kind.missing_requirement():
        pytest.skip(kind.missing_requirement())
    assert devices_in(kind.build(untrained_source(network), precision).content) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_an_engine_built_on_the_cpu_runs_on_a_gpu_after_map_location(monkeypatch):
    from zoerefine.depth.exporting.engines import torchscript_engine

    monkeypatch.setattr(torchscript_engine, "pick_device", lambda: torch.device("cpu"))
    content = torchscript_engine.build(untrained_source("small"), "fp32").content
    rgb_u8 = torch.zeros(2, 30, 40, 3, dtype=torch.uint8, device="cuda")
    zoe_u16 = torch.full((2, 30, 40), 512, device="cuda").to(torch.uint16)
    with jit_warnings_ignored(), torch.inference_mode():
        moved = torch.jit.load(io.BytesIO(content), map_location="cuda")
        for _ in range(3):
            assert torch.equal(moved(rgb_u8, zoe_u16)[0].int(), zoe_u16.int())
