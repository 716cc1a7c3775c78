"""The Python interface: arrays or tensors go in, and the same type comes out."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch

from zoerefine.base.errors import UserError
from zoerefine.depth.data.depth_codec import ZOEDEPTH
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.infer import Refiner
from zoerefine.depth.infer.tensors import encode
from zoerefine.depth.points import MetricPoints


@pytest.fixture(scope="module")
def refiner(bundle):
    return Refiner.load(bundle)


@pytest.fixture
def frames():
    """uint8 [3, 48, 64, 3] and uint16 [3, 48, 64], with invalid pixels."""
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (3, 48, 64, 3)).astype(np.uint8)
    zoe = rng.integers(100, 2000, (3, 48, 64)).astype(np.uint16)
    zoe[:, :5] = 0
    return rgb, zoe


def test_a_uint16_batch_gives_what_the_engine_gives(refiner, engine, frames):
    np.testing.assert_array_equal(refiner(*frames), engine(*frames))
    assert refiner.digest == engine.digest
    assert refiner.manifest == engine.manifest


@pytest.mark.filterwarnings("ignore:In CPU autocast")
def test_a_callers_autocast_changes_nothing(refiner, engine, frames):
    points = MetricPoints([20.0, 50], [20.0, 30], [3.0, 2], [0.1, 0.1])
    tensors = [torch.from_numpy(one) for one in frames]

    def found():
        one = refiner(frames[0][0], frames[1][0], points)
        return [engine(*frames), engine.outputs(*tensors)[0].numpy(), one]

    expected = found()
    with torch.autocast("cpu", torch.bfloat16):
        for ours, theirs in zip(found(), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_one_picture_is_refined_like_a_batch_of_one(refiner, engine, frames, kind):
    rgb, zoe = (kind(field[1]) for field in frames)
    refined = refiner(rgb, zoe)
    assert type(refined) is type(zoe)
    assert (refined.dtype, tuple(refined.shape)) == (zoe.dtype, (48, 64))
    expected = engine(frames[0][1:2], frames[1][1:2])[0]
    np.testing.assert_array_equal(np.asarray(refined), expected)


@pytest.mark.parametrize("unit_m", [1, 1 / 256], ids=["uint16", "metres"])
def test_masked_pixels_are_invalid(refiner, frames, unit_m):
    rgb, zoe = frames
    zoe = zoe if unit_m == 1 else (zoe * unit_m).astype(np.float32)
    hidden = zoe > 1500 * unit_m
    masked, zeros = np.ma.masked_array(zoe, mask=hidden), np.where(hidden, 0, zoe)
    points = MetricPoints([9.0], [30.0], [3.0], [0.0])
    for first, second in (
        (refiner(rgb, masked), refiner(rgb, zeros)),
        (refiner(rgb[0], masked[0], points), refiner(rgb[0], zeros[0], points)),
        (refiner.step(None, rgb, masked)[0], refiner.step(None, rgb, zeros)[0]),
    ):
        assert not isinstance(first, np.ma.MaskedArray)
        np.testing.assert_array_equal(first, second)
    both = map(partial(refiner.with_confidence, rgb), (masked, zeros))
    for first, second in zip(*both, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_depth_of_calls_that_seems_to_be_in_millimetres_is_asked_about_once(
    bundle, frames, capsys, kind
):
    rgb, zoe = frames
    far_m = Refiner.load(bundle).manifest["pseudo_far_m"]
    for factor, said in ((1.0, 0), (3.9, 1)):  # of the farthest depth that training had
        refiner = Refiner.load(bundle)
        for _ in range(20):
            refiner(kind(rgb), kind(np.full_like(zoe, 0.9 * factor * far_m * 256)))
        lines = capsys.readouterr().err.splitlines()
        assert [line.endswith("millimetres, write metres * 256") for line in lines] == [True] * said


@pytest.mark.parametrize(
    "kind",
    [
        np.float32,
        np.float64,
        lambda a: torch.from_numpy(a.astype(np.float32)),
        lambda a: torch.from_numpy(a).half(),
    ],
    ids=["float32", "float64", "tensor", "half tensor"],
)
def test_metres_in_give_metres_out(refiner, engine, frames, kind):
    rgb, zoe = frames
    zoe = zoe // 8 * 8  # float16 represents these exactly
    refined_m = refiner(rgb, kind(zoe / 256))
    assert str(refined_m.dtype).removeprefix("torch.") == "float32"
    np.testing.assert_array_equal(np.asarray(refined_m), engine(rgb, zoe).astype(np.float32) / 256)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_floats_in_millimetres_are_refused(refiner, frames, kind):
    rgb, zoe = frames
    millimetres = (zoe / 256 * 1000).astype(np.float32)
    for call in (refiner, refiner.with_confidence, partial(refiner.step, None)):
        with pytest.raises(UserError, match="give metres, not millimetres"):
            call(kind(rgb), kind(millimetres))
    sky = (zoe / 256).astype(np.float32)
    sky[:, :35] = 1000
    sky[:, 40] = np.nan
    assert refiner(kind(rgb), kind(sky)).shape == zoe.shape


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_confidence_has_the_form_of_depth(refiner, engine, frames, kind):
    rgb, zoe = frames
    _, expected = engine.arrays(rgb, zoe)
    assert refiner.has_confidence
    depth, spread = refiner.with_confidence(kind(rgb), kind(zoe))
    assert type(spread) is type(kind(zoe))
    np.testing.assert_array_equal(np.asarray(depth), engine(rgb, zoe))
    np.testing.assert_array_equal(np.asarray(spread), expected)
    depth_m, spread = refiner.with_confidence(kind(rgb[1]), kind(zoe[1] / 256))
    assert str(spread.dtype).removeprefix("torch.") == "float32"
    assert tuple(spread.shape) == tuple(depth_m.shape) == (48, 64)
    np.testing.assert_allclose(np.asarray(spread), expected[1] / 10000, atol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_points_correct_tensors_of_any_float_type(refiner, frames, dtype):
    rgb, zoe = (torch.from_numpy(field[0]) for field in frames)
    points = MetricPoints([9.0], [30.0], [3.0], [0.0])
    zoe_m = (zoe.float() / 256).to(dtype)
    refined_m = refiner(rgb, zoe_m, points)
    assert torch.equal(refined_m, refiner(rgb, zoe_m.float(), points))


def test_negative_and_non_finite_depth_is_invalid(refiner, frames):
    rgb, zoe = (field[0] for field in frames)
    zoe_m = zoe / 256
    zoe_m[20, :4] = [np.nan, -1, -np.inf, 0]
    zoe_m[30, 0] = np.inf
    refined_m = refiner(rgb, zoe_m)
    np.testing.assert_array_equal(refined_m == 0, ~(np.isfinite(zoe_m) & (zoe_m > 0)))


def test_a_view_of_another_array_is_accepted(refiner, frames):
    rgb, zoe = frames
    flipped = refiner(rgb[:, :, ::-1], zoe[:, :, ::-1])
    np.testing.assert_array_equal(flipped, refiner(rgb[:, :, ::-1].copy(), zoe[:, :, ::-1].copy()))


@pytest.mark.parametrize(
    ("rgb", "zoe", "message"),
    [
        ("float32 4 6 3", "uint16 4 6", r"rgb is float32 \[4, 6, 3\]"),
        ("uint8 3 4 6", "uint16 4 6", r"rgb is uint8 \[3, 4, 6\]"),
        ("uint8 4 6 3", "uint16 6 4", r"for this rgb give \[4, 6\]"),
        ("uint8 2 4 6 3", "uint16 4 6", r"rgb give \[2, 4, 6\]"),
        ("uint8 4 6 3", "int32 4 6", "zoe is int32"),
        ("uint8 0 4 6 3", "uint16 0 4 6", "holds no picture"),
    ],
)
def test_other_shapes_and_types_are_refused_in_one_line(refiner, rgb, zoe, message):
    arrays = [np.zeros(list(map(int, sizes)), kind) for kind, *sizes in (rgb.split(), zoe.split())]
    with pytest.raises(UserError, match=message):
        refiner(*arrays)


@pytest.mark.filterwarnings("ignore")  # torch announces its nested tensors
@pytest.mark.parametrize(
    "make",
    [
        lambda ones: ones.tolist(),
        lambda ones: None,
        lambda ones: ones.to(torch.float8_e4m3fn),
        lambda ones: ones.to_sparse(),
        lambda ones: torch.nested.nested_tensor([ones]),
    ],
    ids=["list", "None", "float8", "sparse", "nested"],
)
def test_what_is_no_array_of_numbers_is_refused(refiner, make):
    zoe = make(torch.ones(4, 6))
    for rgb in (np.zeros((4, 6, 3), np.uint8), torch.zeros(4, 6, 3, dtype=torch.uint8)):
        with pytest.raises(UserError, match=r"^zoe is |^rgb and zoe must be"):
            refiner(rgb, zoe)
    with pytest.raises(UserError, match=r"^rgb and zoe must be"):
        refiner("a.jpg", "a.png")


def test_what_is_no_memory_cannot_be_stepped_and_a_refiner_cannot_be_pickled(refiner, frames):
    with pytest.raises(UserError, match="memory is a str"):
        refiner.step("junk", frames[0][0], frames[1][0])
    with pytest.raises(UserError, match="load its bundle in each process"):
        pickle.dumps(refiner)


@pytest.mark.filterwarnings("error")
def test_depth_and_points_beyond_all_limits_give_no_warning(refiner, frames):
    rgb, zoe = (field[0] for field in frames)
    depth_m = np.where(np.arange(zoe.shape[1]) < 32, np.float32(1e38), np.float32(2))
    assert refiner(rgb, np.broadcast_to(depth_m, zoe.shape)).max() < 256
    far = MetricPoints([9.0], [30.0], [1e308], [0.0])
    np.testing.assert_array_equal(refiner(rgb, zoe, far), refiner(rgb, zoe))


@pytest.mark.filterwarnings("error")
def test_arrays_that_are_only_readable_give_no_warning(refiner, frames):
    """As those of np.frombuffer and of ROS messages."""
    expected = refiner(*frames)
    rgb, zoe = (np.frombuffer(one.tobytes(), one.dtype).reshape(one.shape) for one in frames)
    torch.set_warn_always(True)  # else torch warns once a process
    try:
        np.testing.assert_array_equal(refiner(rgb, zoe), expected)
        np.testing.assert_array_equal(refiner(torch.from_numpy(frames[0]), zoe), expected)
    finally:
        torch.set_warn_always(False)


class OtherArray:
    """An array of another library, which offers DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_of_other_libraries_are_taken_by_dlpack(refiner, engine, frames):
    rgb, zoe = frames
    refined = refiner(OtherArray(rgb), OtherArray(zoe))
    assert isinstance(refined, torch.Tensor)
    np.testing.assert_array_equal(refined.numpy(), engine(rgb, zoe))


def test_tensors_are_encoded_like_arrays():
    edges = [0.0, -1.0, np.nan, np.inf, -np.inf, 1 / 512, 3 / 512, 255.99, 256.0, 1e9, 1.2345]
    depth_m = np.array([edges], np.float32)
    for kind in (np.float32, np.float64, np.float16):
        with np.errstate(over="ignore", invalid="ignore"):
            values = depth_m.astype(kind)
            expected = ZOEDEPTH.encode(values)
        np.testing.assert_array_equal(encode(torch.from_numpy(values)).numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.float32])
def test_pictures_on_a_gpu_never_pass_through_the_host(dtype):
    """`meta` takes the place of a GPU: a copy to the host, or waiting for a value, is an error."""
    meta = torch.device("meta")

    def forward(rgb_u8, zoe_u16):
        assert (rgb_u8.shape, rgb_u8.dtype) == ((2, 48, 64, 3), torch.uint8)
        assert (zoe_u16.shape, zoe_u16.dtype) == ((2, 48, 64), torch.uint16)
        return [torch.empty_like(zoe_u16), torch.empty_like(zoe_u16)]

    manifest = {"outputs": {"depth": "", "spread": ""}}
    refiner = Refiner(Engine(forward, None, manifest, "", meta, 1))
    rgb = torch.empty(2, 48, 64, 3, dtype=torch.uint8, device=meta)
    zoe = torch.empty(2, 48, 64, dtype=dtype, device=meta)
    for output in (refiner(rgb, zoe), *refiner.with_confidence(rgb, zoe)):
        assert (output.device, output.dtype, output.shape) == (meta, dtype, zoe.shape)
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        refiner.engine.outputs(rgb, zoe.to(torch.uint16))[0].cpu()
