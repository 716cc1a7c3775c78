"""The profile: real steps, a drawing, and the bottleneck in a sentence."""

import cv2
import pytest
import torch

from zoerefine.cli import main
from zoerefine.depth.data.cache.cache import MappedRecords
from zoerefine.depth.training.check.profile import verdict


@pytest.mark.parametrize(
    ("shares", "device", "words"),
    [
        ({"waiting for data": 0.02, "convert": 0.1}, "cpu", "The training step is the bottleneck"),
        ({"waiting for data": 0.005, "convert": 0.4}, "cpu", "takes 40% of the time"),
        ({"gather": 0.3}, "cuda", "augment less"),
        ({"waiting for data": 0.3, "reader 0": 0.1, "reader 1": 0.9}, "cpu", "ram if the disk"),
        ({"waiting for data": 0.3, "reader 0": 0.9}, "cuda", "LOADER.TIER device if the records"),
        ({"waiting for data": 0.3, "reader 0": 0.2, "copy": 0.8}, "cuda", "the copy to the device"),
        ({"waiting for data": 0.3, "reader 0": 0.2}, "cpu", "no thread is busy"),
    ],
)  # fmt: skip
def test_the_verdict_names_the_bottleneck(shares, device, words, tmp_path):
    (tmp_path / "records").write_bytes(bytes(4096))
    records = MappedRecords(tmp_path / "records", 1, 4096)
    assert words in verdict(shares, records, torch.device(device))


def profile(tiny, *words):
    return main(["profile", "--config", str(tiny), *map(str, words)])


def test_a_profile_draws_steps_and_names_the_bottleneck(tiny, capsys, tmp_path):
    assert profile(tiny, "--steps", 6, "--out", "profile.png") == 0
    printed = capsys.readouterr().out
    # A GPU has the records in its memory: no readers, and next to nothing to wait for.
    on_gpu, on_cpu = ("gather",), ("reader ", "convert", "waiting for data")
    for row in (*(on_gpu if torch.cuda.is_available() else on_cpu), "training step"):
        assert f"\n{row}" in f"\n{printed}"  # a reader that came late has no row
    assert "bottleneck" in printed or "no thread is busy" in printed
    assert printed.splitlines()[-1] == "profile.png"
    assert cv2.imread(str(tmp_path / "profile.png")).shape[1] > 800
    assert not (tmp_path / "runs").exists()


def test_a_profile_without_a_packed_cache_says_that_frames_are_decoded(tiny, capsys, tmp_path):
    words = ["--steps", 4, "CACHE.MODE", "off", "CACHE.HEIGHT", 8, "CACHE.WIDTH", 8,
             "CACHE.ROOT", "caches", "LOADER.THREADS", 1]  # fmt: skip
    assert profile(tiny, *words) == 0
    assert "decoded when they are needed" in capsys.readouterr().err
    assert not (tmp_path / "caches").exists()
