"""Pseudo depth from pictures: the real network, small and untrained, from a folder."""

import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from tests.depth.data.conftest import constant_network
from zoerefine.base.files.images import read_rgb
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.networks import load_network, zoedepth
from zoerefine.depth.data.networks.add_pseudo import add_pseudo_depth
from zoerefine.depth.data.networks.zoedepth import in_half_precision, model_of, predict, prepare

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed here"
)


@pytest.fixture
def model(small_zoedepth, monkeypatch):
    """A folder with a ZoeDepth of a few thousand weights, used at a ninth of the usual size."""
    monkeypatch.setattr(zoedepth, "SIZE", (128, 160))
    return small_zoedepth


@pytest.fixture
def incomplete(copied_world):
    """The world without the pseudo depth of two of its clips and of one frame more."""
    for clip in ("0000", "0108"):
        shutil.rmtree(copied_world / "zoe_depth_raw" / clip)
    (copied_world / "zoe_depth_raw" / "0054" / "00002.png").unlink()
    (copied_world / "zoe_depth_raw" / "pseudo.json").unlink()
    return copied_world


def test_frames_without_pseudo_depth_get_the_networks(model, incomplete, data_command):
    before = {frame.rgb: frame.zoe for frame in open_dataset(incomplete).frames}
    kept = {path: path.read_bytes() for path in before.values() if path}
    done = data_command("pseudo", incomplete, "--model", model, "--batch", 3)
    assert "9 of 16 frames got pseudo depth" in done.out
    assert all(path.read_bytes() == data for path, data in kept.items())
    network = load_network(str(model))
    for frame in open_dataset(incomplete).frames:
        if before[frame.rgb] is None:
            depth_m = network.predict(read_rgb(frame.rgb)[None])[0]
            np.testing.assert_allclose(read_zoe(frame.zoe) / 256, depth_m, atol=1 / 256)
    again = data_command("pseudo", incomplete, "--model", model)
    assert "0 of 16 frames got pseudo depth" in again.out


SLOW = """
import sys, time
from zoerefine.depth.data.networks import load_network
from tests.depth.data.conftest import constant_network
from zoerefine.depth.data.networks.add_pseudo import add_pseudo_depth
from zoerefine.depth.data.networks.pseudo_source import DepthNetwork
from zoerefine.depth.data.layouts.readers import open_dataset

network = constant_network()

def predict(pictures):
    time.sleep(0.1)
    return network.predict(pictures)

add_pseudo_depth(open_dataset(sys.argv[1]), DepthNetwork(network.source, predict), 1)
"""


def test_a_kill_leaves_whole_files_and_the_same_call_goes_on(incomplete, wait_until):
    process = subprocess.Popen([sys.executable, "-c", SLOW, incomplete], stderr=subprocess.DEVNULL)
    wait_until((incomplete / "zoe_depth_raw" / "0000").exists, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for path in incomplete.glob("zoe_depth_raw/*/?????.png"):
        assert read_zoe(path).shape == (48, 64)
    assert add_pseudo_depth(open_dataset(incomplete), constant_network(), 4) > 0
    assert all(frame.zoe for frame in open_dataset(incomplete).frames)


@pytest.mark.parametrize("size", [(480, 640), (48, 64), (100, 300)])
def test_pictures_are_prepared_like_transformers_own_processor_does_it(size):
    from transformers.models.zoedepth.image_processing_pil_zoedepth import (
        ZoeDepthImageProcessorPil,
    )

    picture = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    theirs = ZoeDepthImageProcessorPil(ensure_multiple_of=32)(picture, return_tensors="pt")
    ours = prepare(torch.from_numpy(picture)[None].permute(0, 3, 1, 2).float() / 255)
    torch.testing.assert_close(ours, theirs["pixel_values"].float(), atol=1e-4, rtol=0)


def test_pictures_are_prepared_on_the_networks_device(monkeypatch):
    """`meta` takes the place of a GPU. In a new thread another one would be current."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    devices = []

    def model(pictures):
        devices.append(pictures.device.type)
        return torch.full((len(pictures), 1, *pictures.shape[2:]), 3.0)

    depth_m = predict(model, torch.device("meta"), np.zeros((2, 48, 64, 3), np.uint8))
    assert devices == ["meta", "meta"]
    np.testing.assert_allclose(depth_m, np.full((2, 48, 64), 3.0), rtol=1e-5)


def test_half_precision_changes_depth_by_less_than_a_step_of_its_file(model):
    from transformers import ZoeDepthForDepthEstimation

    device = torch.device("cpu")
    network = model_of(ZoeDepthForDepthEstimation.from_pretrained(model).eval(), device)
    pictures = prepare(torch.rand(1, 3, 48, 64, generator=torch.Generator().manual_seed(0)))
    with torch.inference_mode():
        half = in_half_precision(network, device)(pictures)
        assert not torch.equal(half, network(pictures))
        torch.testing.assert_close(half, network(pictures), rtol=0, atol=1 / 256)


def test_pictures_that_overflow_in_half_precision_are_computed_again():
    def model(pictures):
        return (pictures @ torch.eye(4)).float()

    run = in_half_precision(model, torch.device("cpu"))
    ordinary, large = torch.full((1, 1, 4, 4), 2.0), torch.full((1, 1, 4, 4), 1e6)
    assert torch.equal(run(ordinary), ordinary)
    assert torch.equal(run(large), large)
