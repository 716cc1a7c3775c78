"""Pseudo depth from pictures: the real network, small and untrained, from a folder."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from zoerefine.data.decode import read_zoe
from zoerefine.data.readers import open_dataset
from zoerefine.data.zoedepth import load_model, predict, prepare
from zoerefine.errors import UserError
from zoerefine.image_files import read_rgb

pytest.importorskip("transformers", reason="transformers is not installed here")
DATA = Path(__file__).resolve().parents[2] / "platform" / "data.py"


@pytest.fixture
def model(small_zoedepth):
    """A folder with a ZoeDepth of a few thousand weights."""
    return small_zoedepth


@pytest.fixture
def lacking(world, tmp_path):
    """The world without the pseudo depth of two of its clips and of one frame more."""
    copy = tmp_path / "world"
    shutil.copytree(world, copy)
    for clip in ("0000", "0108"):
        shutil.rmtree(copy / "zoe_depth_raw" / clip)
    (copy / "zoe_depth_raw" / "0054" / "00002.png").unlink()
    return copy


def test_frames_that_lack_pseudo_depth_get_the_networks(model, lacking, script):
    before = {frame.rgb: frame.zoe for frame in open_dataset(lacking).frames}
    kept = {path: path.read_bytes() for path in before.values() if path}
    done = script("data", "zoedepth", lacking, "--model", model, "--batch", 3)
    assert done.returncode == 0, done.stderr
    assert "9 of 16 frames got pseudo depth" in done.stdout
    assert all(path.read_bytes() == data for path, data in kept.items())
    network = load_model(str(model))
    for frame in open_dataset(lacking).frames:
        if before[frame.rgb] is None:
            depth_m = predict(network, read_rgb(frame.rgb)[None])[0]
            np.testing.assert_allclose(read_zoe(frame.zoe) / 256, depth_m, atol=1 / 256)
    again = script("data", "zoedepth", lacking, "--model", model)
    assert "0 of 16 frames got pseudo depth" in again.stdout


def test_a_kill_leaves_whole_files_and_the_same_command_goes_on(model, lacking, wait_until):
    command = [sys.executable, DATA, "zoedepth", lacking, "--model", model, "--batch", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wait_until((lacking / "zoe_depth_raw" / "0000").exists, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for path in lacking.glob("zoe_depth_raw/*/?????.png"):
        assert read_zoe(path).shape == (48, 64)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stdout.startswith("0 of")
    assert all(frame.zoe for frame in open_dataset(lacking).frames)


def test_a_list_of_frames_learns_where_its_pseudo_depth_is(model, world, script, tmp_path):
    frame = open_dataset(world).frames[0]
    shutil.copy(frame.rgb, tmp_path / "a.jpg")
    cv2.imwrite(str(tmp_path / "d.png"), np.full((48, 64), 2000, np.uint16))
    (tmp_path / "frames.csv").write_text("clip,rgb,depth,pseudo\nk,a.jpg,d.png,\n")
    done = script("data", "zoedepth", tmp_path, "--model", model)
    assert done.returncode == 0, done.stderr
    assert open_dataset(tmp_path).frames[0].zoe == tmp_path / "pseudo" / "k" / "a.png"


@pytest.mark.parametrize("size", [(480, 640), (48, 64), (100, 300)])
def test_pictures_are_prepared_as_transformers_own_processor_does(size):
    from transformers.models.zoedepth.image_processing_pil_zoedepth import (
        ZoeDepthImageProcessorPil,
    )

    picture = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    theirs = ZoeDepthImageProcessorPil(ensure_multiple_of=32)(picture, return_tensors="pt")
    ours = prepare(torch.from_numpy(picture)[None].permute(0, 3, 1, 2).float() / 255)
    torch.testing.assert_close(ours, theirs["pixel_values"].float(), atol=1e-4, rtol=0)


def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no ZoeDepth in .*nothing.*give --model a folder"):
        load_model(str(tmp_path / "nothing"))
