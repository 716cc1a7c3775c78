"""The filter over time: what it does to depth, and that `Refiner` offers it in two forms."""

import cv2
import numpy as np
import pytest
import torch

from tests.processes import run_new_python
from zoerefine.depth.infer import Refiner
from zoerefine.depth.infer.inference import points_alone
from zoerefine.depth.infer.stream import step

HEIGHT, WIDTH = 96, 128


def texture(seed, height=HEIGHT, width=WIDTH):
    """A smooth random picture, uint8 [H, W, 3]."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 8, width // 8, 3)).astype(np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def stream(rgb, depth):
    """The steady depth of consecutive frames, uint16 [N, H, W]."""
    memory, found = None, []
    for picture, depth_u16 in zip(rgb, depth, strict=True):
        steady, memory = step(memory, picture, depth_u16)
        found.append(steady)
    return np.stack(found)


def flicker(depth, truth):
    """The mean change of a pixel's log error from frame to frame."""
    return np.abs(np.diff(np.log(depth / truth), axis=0)).mean()


def u16(depth_m):
    return np.rint(depth_m * 256).astype(np.uint16)


def static_scene(frames=20):
    """Pictures and depth of a room that does not move, whose depth has a noisy scale."""
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 3, (frames, HEIGHT, WIDTH, 3))
    rgb = np.clip(texture(0) + noise, 0, 255).astype(np.uint8)
    truth = np.linspace(2, 5, WIDTH) * np.ones((frames, HEIGHT, 1))
    scale = np.exp(rng.normal(0, 0.1, (frames, 1, 1)))
    return rgb, u16(truth * scale), truth


@pytest.mark.numeric
def test_a_static_scene_with_a_noisy_scale_becomes_much_steadier():
    rgb, depth, truth = static_scene()
    steady = stream(rgb, depth) / 256
    # The gain of a frame is a tenth, so a tenth of the flicker is expected.
    assert flicker(steady, truth) < 0.25 * flicker(depth / 256, truth)
    assert np.abs(np.log(steady[10:] / truth[10:])).mean() < 0.1


@pytest.mark.numeric
@pytest.mark.parametrize("metres", [0.5, 2.0])
def test_an_error_of_the_first_frame_is_forgotten_although_depth_is_rounded(metres):
    rgb = [texture(0, 240, 320)] * 60
    depth = np.full((60, 240, 320), u16(metres))
    depth[0] = u16(metres * 1.08)
    # With plain rounding five units would stay: 4% of 0.5 m.
    assert stream(rgb, depth)[-1].mean() / depth[-1].mean() == pytest.approx(1, abs=0.015)


def test_the_first_frame_is_the_refined_one_bit_for_bit():
    rgb, depth, _ = static_scene(2)
    np.testing.assert_array_equal(stream(rgb, depth)[0], depth[0])


@pytest.mark.numeric
def test_depth_moves_with_the_picture():
    wide, step_px = texture(2, width=WIDTH + 64), 2
    wide_m = np.where(np.arange(WIDTH + 64) // 32 % 2, 2.0, 3.0)
    at = np.arange(0, 40, step_px)
    rgb = [np.ascontiguousarray(wide[:, x : x + WIDTH]) for x in at]
    truth = np.stack([np.tile(wide_m[x : x + WIDTH], (HEIGHT, 1)) for x in at])
    steady = stream(rgb, u16(truth)) / 256
    # Depth that stayed in its place would be wrong by log(3 / 2) = 0.4 at half of the pixels.
    assert np.abs(np.log(steady[-1] / truth[-1])).mean() < 0.03


@pytest.mark.numeric
def test_an_approach_is_followed_without_delay():
    picture, frames, speed = texture(3, 4 * HEIGHT, 4 * WIDTH), 15, 0.02
    rgb, truth = [], []
    for number in range(frames):
        zoom = np.exp(speed * number)
        centre = cv2.getRotationMatrix2D((2 * WIDTH, 2 * HEIGHT), 0, zoom)
        large = cv2.warpAffine(picture, centre, (4 * WIDTH, 4 * HEIGHT))
        rgb.append(large[HEIGHT:-HEIGHT, WIDTH:-WIDTH].copy())
        truth.append(np.full(rgb[-1].shape[:2], 4 / zoom))
    steady = stream(rgb, u16(np.stack(truth))) / 256
    # A filter that expects no approach lags by speed * (1 - gain) / gain in the end: here 10%.
    assert np.abs(np.log(steady[-1] / truth[-1])).mean() < 0.06


@pytest.mark.parametrize("other", [texture(9), np.full((HEIGHT, WIDTH, 3), 255, np.uint8)])
def test_a_cut_begins_anew(other):
    rgb, depth, _ = static_scene(5)
    rgb[3:], depth[3:] = other, 700
    steady = stream(rgb, depth)
    assert (steady[2] != depth[2]).any()
    np.testing.assert_array_equal(steady[3], depth[3])


def test_a_frame_of_another_size_begins_anew():
    rgb, depth, _ = static_scene(2)
    memory = step(None, rgb[0], depth[0])[1]
    half = depth[1, ::2].copy()
    np.testing.assert_array_equal(step(memory, rgb[1, ::2].copy(), half)[0], half)


@pytest.mark.numeric
def test_something_that_appears_is_seen_at_once():
    rgb, depth, _ = static_scene(8)
    rgb[6:, 30:70, 40:90], depth[6:, 30:70, 40:90] = 250, u16(np.array(1.0))
    steady = stream(rgb, depth)[6, 40:60, 50:80] / 256
    np.testing.assert_allclose(steady, 1.0, rtol=0.2)  # the wall behind it is at 3 m or more


@pytest.mark.numeric
def test_an_object_has_no_holes_where_its_picture_is_like_what_was_there_before():
    rgb, depth = [texture(0) for _ in range(3)], np.full((3, HEIGHT, WIDTH), u16(3.5))
    rgb[2][30:70, 40:90], depth[2, 30:70, 40:90] = 250, u16(2.9)
    rgb[2][46:54, 60:68] = rgb[1][46:54, 60:68]
    steady = stream(rgb, depth)[2, 46:54, 60:68] / 256
    np.testing.assert_allclose(steady, 2.9, rtol=0.03)


def test_invalid_pixels_stay_0_and_valid_ones_valid():
    rgb, depth, _ = static_scene(6)
    rng = np.random.default_rng(5)
    depth[rng.random(depth.shape) < 0.3] = 0
    depth[2], depth[3, :, :60], depth[4, 0, :2] = 0, 0, (1, 65535)
    steady = stream(rgb, depth)
    np.testing.assert_array_equal(steady > 0, depth > 0)


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 3), (20, 20)])
def test_pictures_of_any_size_can_be_a_stream(size):
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (3, *size, 3)).astype(np.uint8)
    depth = rng.integers(100, 2000, (3, *size)).astype(np.uint16)
    steady = stream(rgb, depth)
    assert (steady.shape, steady.dtype) == (depth.shape, np.uint16)


def test_the_bits_do_not_depend_on_the_number_of_threads():
    rgb, depth, _ = static_scene(4)
    threads = cv2.getNumThreads()
    try:
        found = []
        for count in (1, 2, 7):
            cv2.setNumThreads(count)
            found.append(stream(rgb, depth))
    finally:
        cv2.setNumThreads(threads)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_a_stream_of_a_refiner_is_its_calls_with_steps_between(bundle, kind):
    refiner = Refiner.load(bundle)
    rgb, depth, _ = static_scene(4)
    steady, memory = refiner.stream(), None
    frames_memory, expected = None, []
    for picture, zoe in zip(rgb, depth, strict=True):
        one = steady(kind(picture), kind(zoe))
        other, memory = refiner.step(memory, kind(picture), kind(zoe))
        assert type(one) is type(kind(zoe))
        assert tuple(one.shape) == (HEIGHT, WIDTH)
        by_hand, frames_memory = step(frames_memory, picture, refiner(picture, zoe))
        for found in (one, other):
            np.testing.assert_array_equal(np.asarray(found), by_hand)
        expected.append(by_hand)
    steady.reset()
    first = steady(kind(rgb[0]), kind(depth[0]))
    np.testing.assert_array_equal(np.asarray(first), refiner(rgb[0], depth[0]))


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_a_batch_is_consecutive_frames_in_metres_too(kind):
    refiner = Refiner(points_alone())  # returns its input
    rgb, depth, _ = static_scene(5)
    expected = stream(rgb, depth)
    steady = refiner.stream()
    first = steady(kind(rgb[:3]), kind(depth[:3].astype(np.float32) / 256))
    second = steady(kind(rgb[3]), kind(depth[3]))
    third = steady(kind(rgb[4:]), kind(depth[4:]))
    np.testing.assert_array_equal(np.asarray(first), expected[:3].astype(np.float32) / 256)
    np.testing.assert_array_equal(np.asarray(second), expected[3])
    np.testing.assert_array_equal(np.asarray(third), expected[4:])


def test_a_stream_of_arrays_does_not_import_torch():
    """Bundles of ONNX Runtime run on machines without it."""
    program = """
import sys
import numpy as np
from zoerefine.depth.infer import Refiner
from zoerefine.depth.infer.inference import points_alone
stream = Refiner(points_alone()).stream()
for number in range(2):
    stream(np.zeros((48, 64, 3), np.uint8), np.full((48, 64), 500 + number, np.uint16))
print("torch" in sys.modules)
"""
    done = run_new_python(program)
    assert (done.stdout, done.stderr) == ("False\n", "")
