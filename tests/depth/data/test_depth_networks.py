"""Depth networks of other makers: transformers' architectures and ONNX files, small and untrained.

All weights are random. The code that loads, prepares, runs and resizes them is the real one.
"""

import json
import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import read_rgb, write_png
from zoerefine.cli import main
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.networks import load_network, zoedepth

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed here"
)


def of_transformers(name):
    """One of its classes; only a test that runs loads it."""
    return getattr(import_module("transformers"), name)


IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
ANYTHING_PROCESSOR = {
    "image_processor_type": "DPTImageProcessor", "do_resize": True, "keep_aspect_ratio": True,
    "size": {"height": 70, "width": 70}, "ensure_multiple_of": 14, "resample": 3,
    "do_rescale": True, "do_normalize": True, "do_pad": False,
    "image_mean": IMAGENET["mean"], "image_std": IMAGENET["std"],
}  # fmt: skip
GLPN_PROCESSOR = {"image_processor_type": "GLPNImageProcessor", "do_resize": True,
                  "do_rescale": True, "size_divisor": 32}  # fmt: skip
OUTPUT_BIASES = {"head.layers.4.bias": 0.5, "fov_model.head.layers.4.bias": 60.0}


def depth_anything(kind="metric"):
    backbone = of_transformers("Dinov2Config")(
        image_size=56, patch_size=14, num_hidden_layers=4, hidden_size=16, num_attention_heads=2,
        out_features=["stage1", "stage2", "stage3", "stage4"], reshape_hidden_states=False,
    )  # fmt: skip
    config = of_transformers("DepthAnythingConfig")(
        backbone_config=backbone, reassemble_hidden_size=16, neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8, head_hidden_size=8, depth_estimation_type=kind, max_depth=80,
    )  # fmt: skip
    return of_transformers("DepthAnythingForDepthEstimation")(config)


def depth_pro():
    part = {"model_type": "dinov2", "hidden_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 2, "image_size": 64, "patch_size": 16}  # fmt: skip
    config = of_transformers("DepthProConfig")(
        fusion_hidden_size=8, patch_size=64, intermediate_hook_ids=[1, 0],
        intermediate_feature_dims=[8, 8], scaled_images_ratios=[0.5, 1.0],
        scaled_images_overlap_ratios=[0.0, 0.2], scaled_images_feature_dims=[8, 8],
        image_model_config=part, patch_model_config=part, fov_model_config=part, use_fov_model=True,
    )  # fmt: skip
    return of_transformers("DepthProForDepthEstimation")(config)


def glpn():
    config = of_transformers("GLPNConfig")(
        hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=8,
    )  # fmt: skip
    return of_transformers("GLPNForDepthEstimation")(config)


def dpt():
    config = of_transformers("DPTConfig")(
        hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=16,
        image_size=32, patch_size=16, backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 8, 8], fusion_hidden_size=8,
    )  # fmt: skip
    return of_transformers("DPTForDepthEstimation")(config)


def save(make, folder, processor=None):
    """A network with random weights in a folder of its own, as its makers publish it."""
    torch.manual_seed(0)
    network = make()
    for weight in network.parameters():  # those of a new network are so small that depth is flat
        torch.nn.init.normal_(weight, std=0.1)
    for name, value in OUTPUT_BIASES.items():  # of Depth Pro: positive depth, a field of view
        if name in dict(network.named_parameters()):
            torch.nn.init.constant_(network.get_parameter(name), value)
    network.save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


METRIC = {
    "depth_anything": (depth_anything, ANYTHING_PROCESSOR),
    "depth_pro": (depth_pro,),
    "glpn": (glpn, GLPN_PROCESSOR),
}


@pytest.fixture(scope="module")
def networks(tmp_path_factory, small_zoedepth):
    """Folders of metric networks by their architecture. Tests must not change them."""
    root = tmp_path_factory.mktemp("networks")
    folders = {name: save(words[0], root / name, *words[1:]) for name, words in METRIC.items()}
    return folders | {"zoedepth": small_zoedepth}


@pytest.fixture
def pictures(world, tmp_path):
    """A frames.csv of three pictures without any depth."""
    lines = ["clip,rgb,depth,pseudo"]
    lines += [f"k,{frame.rgb},," for frame in open_dataset(world).frames[:3]]
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "frames.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "pictures"


def check_made(done, root, network):
    """The command ended well, and the files have this network's depth and name."""
    assert done.code == 0, done.err
    dataset = open_dataset(root)
    assert dataset.pseudo_sources == {network.source}
    for frame in dataset.frames:
        expected_m = network.predict(read_rgb(frame.rgb)[None])[0]
        assert expected_m.shape == (48, 64) and expected_m.dtype == np.float32
        assert np.ptp(expected_m) > 0
        np.testing.assert_allclose(read_zoe(frame.zoe) / 256, expected_m.clip(0), atol=1 / 256)
        with Image.open(frame.zoe) as image:
            assert image.info["depth-scale"] == "metres = value / 256"


@pytest.mark.parametrize("name", ["zoedepth", *METRIC])
def test_networks_of_several_architectures_make_pseudo_depth(
    networks, name, pictures, data_command, monkeypatch
):
    monkeypatch.setattr(zoedepth, "SIZE", (128, 160))  # a ninth of the usual size
    folder = networks[name]
    done = data_command("pseudo", pictures, "--model", folder, "--batch", 2)
    network = load_network(str(folder))
    assert network.source.name == folder.name and len(network.source.digest) == 64
    check_made(done, pictures, network)


def test_depth_anythings_depth_has_its_range_and_depth_pros_the_field_of_view(networks):
    picture = np.zeros((1, 40, 60, 3), np.uint8)
    config = json.loads((networks["depth_anything"] / "config.json").read_text())
    assert config["max_depth"] == 80
    found_m = load_network(str(networks["depth_anything"])).predict(picture)
    assert 10 < np.median(found_m) < 80
    network = (
        of_transformers("DepthProForDepthEstimation").from_pretrained(networks["depth_pro"]).eval()
    )
    with torch.inference_mode():
        found = network(pixel_values=torch.full((1, 3, 128, 128), -1.0))
    focal_length = 0.5 / np.tan(np.deg2rad(found.field_of_view.item()) / 2)  # in picture widths
    expected_m = focal_length / np.median(found.predicted_depth)
    found_m = load_network(str(networks["depth_pro"])).predict(picture)
    assert np.median(found_m) == pytest.approx(expected_m, rel=0.02)


@pytest.mark.parametrize("make", [dpt, lambda: depth_anything("relative")])
def test_relative_networks_are_refused_with_the_reason(make, tmp_path, pictures, data_command):
    folder = save(make, tmp_path / "relative", ANYTHING_PROCESSOR)
    done = data_command("pseudo", pictures, "--model", folder, code=2)
    assert "predicts relative depth, which has no unit: its scale and offset differ" in done.err
    assert not (pictures / "pseudo").exists()


def test_a_network_is_the_same_under_another_name_and_another_with_other_weights(
    networks, tmp_path
):
    source = load_network(str(networks["glpn"])).source
    copy = shutil.copytree(networks["glpn"], tmp_path / "copied")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"transformers_version": "6.0"}))
    assert load_network(str(copy)).source.is_like(source)
    (copy / "config.json").write_text(json.dumps(config | {"max_depth": 20}))
    assert not load_network(str(copy)).source.is_like(source)


def test_a_network_is_called_like_its_folder_wherever_it_is_named_from(
    networks, tmp_path, monkeypatch
):
    copy = shutil.copytree(networks["glpn"], tmp_path / "net\x1b")
    monkeypatch.chdir(copy)
    for name in (".", str(copy)):
        assert load_network(name).source.name == "net\\x1b"


def test_code_in_a_networks_folder_is_never_run_and_pickled_weights_not_read(networks, tmp_path):
    copy = shutil.copytree(networks["glpn"], tmp_path / "copied")
    config = json.loads((copy / "config.json").read_text())
    (copy / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    evil = {"auto_map": {"AutoConfig": "evil.Evil", "AutoModelForDepthEstimation": "evil.Evil"}}
    (copy / "config.json").write_text(json.dumps(config | evil | {"model_type": "evil"}))
    with pytest.raises(UserError, match="no depth network in"):
        load_network(str(copy))
    assert not (tmp_path / "ran").exists()
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "model.safetensors").unlink()
    torch.save({}, copy / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no depth network in .*safetensors"):
        load_network(str(copy))


@pytest.mark.parametrize("fault", ["cut", "empty", "another size", "without a head", "config"])
def test_damaged_networks_are_one_line(networks, tmp_path, fault):
    copy = shutil.copytree(networks["glpn"], tmp_path / "copied")
    weights, config = copy / "model.safetensors", copy / "config.json"
    tensors = load_file(weights)
    match fault:
        case "cut" | "empty":
            weights.write_bytes(weights.read_bytes()[: 0 if fault == "empty" else 1000])
        case "without a head":
            kept = {name: tensor for name, tensor in tensors.items() if "head" not in name}
            save_file(kept, weights, {"format": "pt"})
        case "another size":
            facts = json.loads(config.read_text()) | {"decoder_hidden_size": 16}
            config.write_text(json.dumps(facts))
        case "config":
            config.write_text("{")
    with pytest.raises(UserError, match="no depth network in") as caught:
        load_network(str(copy))
    assert "\n" not in str(caught.value)


# ONNX files.

DESCRIPTION = {"name": "tiny", "height": 24, "width": 32, "unit": "m", **IMAGENET}


GREY = np.full((1, 48, 64, 3), 51, np.uint8)
GREY_VALUE = 40 + 10 * (0.2 - IMAGENET["mean"][0]) / IMAGENET["std"][0]  # what `Bright` makes of it


class Bright(torch.nn.Module):
    """Depth that grows with the normalised red: a network whose output can be computed."""

    def __init__(self, channels_first):
        super().__init__()
        self.channels_first = channels_first

    def forward(self, rgb):
        red = rgb[:, 0] if self.channels_first else rgb[..., 0]
        return 40.0 + 10.0 * red[:, None]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """ONNX files of such a network, by whether channels come first, as bytes."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed here")
    path = tmp_path_factory.mktemp("exported") / "tiny.onnx"
    found = {}
    for channels_first, shape in ((True, (1, 3, 24, 32)), (False, (1, 24, 32, 3))):
        torch.onnx.export(Bright(channels_first), (torch.rand(shape),), dynamo=True).save(path)
        found[channels_first] = path.read_bytes()
    return found


@pytest.fixture
def onnx_file(exported, tmp_path):
    """Such a file with its description: onnx_file(unit="mm", ...) -> its path."""

    def make(channels_first=True, **facts):
        path = tmp_path / "tiny.onnx"
        path.write_bytes(exported[channels_first])
        path.with_suffix(".json").write_text(json.dumps(DESCRIPTION | facts))
        return path

    return make


def test_an_onnx_file_with_a_description_makes_pseudo_depth(onnx_file, pictures, data_command):
    path = onnx_file()
    done = data_command("pseudo", pictures, "--model", path)
    network = load_network(str(path))
    assert network.source.name == "tiny"
    check_made(done, pictures, network)
    expected_m = np.full((1, 48, 64), GREY_VALUE)
    np.testing.assert_allclose(network.predict(GREY), expected_m, rtol=1e-5)


def test_pseudo_depth_of_a_picture_that_was_replaced_is_made_again(
    onnx_file, data_command, tmp_path
):
    folder, path = tmp_path / "own", onnx_file()
    folder.mkdir()
    for name, grey in (("a", 50), ("b", 100)):
        Image.new("RGB", (64, 48), (grey, grey, grey)).save(folder / f"{name}.png")
        write_png(folder / f"{name}_depth.png", np.full((48, 64), 2000, np.uint16), {})
    rows = ["clip,rgb,depth,pseudo", "k,a.png,a_depth.png,", "k,b.png,b_depth.png,"]
    (folder / "frames.csv").write_text("\n".join(rows) + "\n")
    assert data_command("pseudo", folder, "--model", path).out.startswith("2 of ")
    copy = shutil.copytree(folder, tmp_path / "copy")  # with other times
    assert data_command("pseudo", copy, "--model", path).out.startswith("0 of ")

    Image.new("RGB", (64, 48), (200, 200, 200)).save(folder / "a.png")
    frame = open_dataset(folder).frames[0]
    before = read_zoe(frame.zoe)
    fault = f"{frame.zoe} was made for another picture than {frame.rgb} is now: run data pseudo"
    assert fault in data_command("inspect", folder, code=1).out
    assert data_command("pseudo", folder, "--model", path).out.startswith("1 of ")
    data_command("inspect", folder)
    expected_m = load_network(str(path)).predict(read_rgb(frame.rgb)[None])[0]
    np.testing.assert_allclose(read_zoe(frame.zoe) / 256, expected_m, atol=1 / 256)
    assert (read_zoe(frame.zoe) != before).all()


@pytest.mark.parametrize(("unit", "metres"), [("mm", lambda v: v / 1000), ("1/m", lambda v: 1 / v)])
def test_the_unit_and_the_layout_of_an_onnx_file_are_heeded(onnx_file, unit, metres):
    path = onnx_file(channels_first=False, unit=unit)
    expected_m = np.full((1, 48, 64), metres(GREY_VALUE))
    np.testing.assert_allclose(load_network(str(path)).predict(GREY), expected_m, rtol=1e-5)


def check_cameras(network, root):
    """The pseudo depth of each frame is that of its camera; returns the last frame."""
    for frame in open_dataset(root).frames:
        expected_m = network.predict(read_rgb(frame.rgb)[None], frame.intrinsics)[0]
        np.testing.assert_allclose(read_zoe(frame.zoe) / 256, expected_m, atol=1 / 256)
    return frame


def test_a_focal_term_makes_metres_of_the_camera(onnx_file, pictures, data_command, monkeypatch):
    """metres = output * focal length / 300, in pixels of the network's input of 32x24."""
    plain = load_network(str(onnx_file()))
    path = onnx_file(focal=300)
    network = load_network(str(path))
    given = Intrinsics(100, 120, 32, 24)
    found_m = network.predict(GREY, given)
    np.testing.assert_allclose(found_m, plain.predict(GREY) * (50 + 60) / 2 / 300, rtol=1e-6)
    with pytest.raises(UserError, match=r"tiny needs the camera's focal length: give --intrinsics"):
        network.predict(GREY)
    with pytest.raises(UserError, match="principal point outside a picture of 30x48"):
        network.predict(GREY[:, :, :30], given)

    done = data_command("pseudo", pictures, "--model", path, code=2)
    assert "tiny needs the camera's focal length" in done.err
    listed = pictures / "frames.csv"
    head, *rows = listed.read_text().splitlines()
    cameras = [f"{row},{100 + 9 * k},120,32,24" for k, row in enumerate(rows)]
    listed.write_text("\n".join([f"{head},fx,fy,cx,cy", *cameras]) + "\n")
    done = data_command("pseudo", pictures, "--model", path)
    frame = check_cameras(network, pictures)

    again = data_command("pseudo", pictures, "--model", path)
    assert again.out.startswith("0 of ") and "which camera" not in again.err
    write_png(frame.zoe, read_zoe(frame.zoe), {})  # as an earlier version left it
    again = data_command("pseudo", pictures, "--model", path)
    assert again.out.startswith("0 of ")
    assert "1 files of pseudo depth do not say which camera they are of" in again.err
    frame.zoe.unlink()
    listed.write_text(listed.read_text().replace(str(frame.zoe.relative_to(pictures)), ""))
    assert data_command("pseudo", pictures, "--model", path).out.startswith("1 of ")
    lines = listed.read_text().splitlines()
    lines[1] = lines[1].replace(",120,", ",120.00001,")
    listed.write_text("\n".join(lines) + "\n")
    assert data_command("pseudo", pictures, "--model", path).out.startswith("1 of ")
    lines[1:] = [line.replace(",120", ",60") for line in lines[1:]]
    listed.write_text("\n".join(lines) + "\n")
    done = data_command("pseudo", pictures, "--model", path)
    assert done.out.startswith(f"{len(rows)} of {len(rows)} frames got"), done.err
    frame = check_cameras(network, pictures)

    monkeypatch.chdir(pictures.parent)
    camera = ("--intrinsics", "100", "120", "32", "24")
    points = pictures.parent / "points"
    name = frame.rgb.stem
    points.mkdir()
    (points / f"{name}.csv").write_text("x,y,metres\n1,1,2\n")
    copied = shutil.copytree(frame.rgb.parent, "alone")  # in no data set that states a camera

    def infer(rgb, *more):
        words = ["--rgb", str(rgb), "--depth-model", str(path), "--points", str(points)]
        return main(["infer", *words, *more])

    assert infer(copied, "--out", "refused") == 2
    rgb = read_rgb(frame.rgb)
    height, width = rgb.shape[:2]
    # HabitatDyn's 90 degrees.
    stated = Intrinsics(width / 2, width / 2, width / 2, height / 2)
    for folder, more, used in (
        (copied, camera, given),
        (frame.rgb.parent, (), stated),
        (frame.rgb.parent, camera, given),
    ):
        assert infer(folder, *more, "--out", "out") == 0
        found_m = read_zoe(Path(f"out/zoe_depth_raw/{name}.png")) / 256
        expected_m = network.predict(rgb[None], used)[0]
        np.testing.assert_allclose(found_m, expected_m, atol=1 / 256)


def test_infer_uses_the_camera_of_each_frame(onnx_file, pictures, monkeypatch, capsys):
    network_file = str(onnx_file(focal=300))
    network = load_network(network_file)
    monkeypatch.chdir(pictures)
    Path("k").mkdir()
    Path("points").mkdir()
    for number, frame in enumerate(open_dataset(".").frames):
        shutil.copy(frame.rgb, f"k/{number}.jpg")
    Path("points/0.csv").write_text("x,y,metres\n1,1,2\n")

    def infer(*focal_lengths):
        lines = [f"k,k/{k}.jpg,,,{fx},120,32,24" for k, fx in enumerate(focal_lengths)]
        Path("frames.csv").write_text("\n".join(["clip,rgb,depth,pseudo,fx,fy,cx,cy", *lines]))
        words = ["--rgb", "k", "--depth-model", network_file, "--points", "points", "--clouds"]
        assert main(["infer", *words, "--out", "../out"]) == 0
        for frame in open_dataset(".").frames:
            found_m = read_zoe(Path(f"../out/zoe_depth_raw/{frame.name}.png")) / 256
            expected_m = network.predict(read_rgb(frame.rgb)[None], frame.intrinsics)[0]
            np.testing.assert_allclose(found_m, expected_m, atol=1 / 256)
            cloud = Path(f"../out/clouds/{frame.name}.ply").read_bytes()
            assert f"comment camera {frame.intrinsics}\n".encode() in cloud
        return capsys.readouterr()

    printed = infer(100, 150, 200)
    assert f"the cameras of the pictures are those of the data set {pictures}: 3" in printed.err
    assert "1 frames refined, 2 kept" in infer(100, 150.00001, 200).out
    assert "the camera is that of the data set" in infer(100, 100, 100).err
    lines = Path("frames.csv").read_text().splitlines()
    Path("frames.csv").write_text("\n".join([*lines[:-1], "k,k/2.jpg,,,,,,"]))
    words = ["--rgb", "k", "--depth-model", network_file, "--points", "points"]
    assert main(["infer", *words, "--out", "../refused"]) == 2
    assert "needs the camera's focal length" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"unit": "relative"}, "predicts relative depth"),
        ({"unit": "feet"}, "unit must be one of m, mm, 1/m, relative"),
        ({"height": 48}, "its description says one float32 of 3 channels, height 48"),
        ({"std": [1, 1, 0]}, "std must be three numbers above 0"),
        ({"mean": 0.5}, "mean must be three numbers"),
        ({"mean": [123.7, 116.3, 103.5]}, "mean must be three numbers from 0 to 1, as colours are"),
        ({"mean": [0.5, 0.5, 10**400]}, "mean must be three numbers"),
        ({"extra": 1}, "must have exactly these keys"),
        ({"focal": 0}, "focal must be a number of pixels above 0"),
        ({"focal": "long"}, "focal must be a number of pixels above 0"),
    ],
)
def test_a_description_that_does_not_fit_is_one_line(onnx_file, facts, message):
    path = onnx_file(**facts)
    with pytest.raises(UserError) as caught:
        load_network(str(path))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_onnx_file_that_does_not_fit_is_one_line(onnx_file):
    onnx = pytest.importorskip("onnx", reason="ONNX is not installed here")
    path = onnx_file()
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4  # takes no single picture
    onnx.save(model, path)
    with pytest.raises(UserError, match="tiny cannot be run") as fault:
        load_network(str(path)).predict(np.zeros((1, 48, 64, 3), np.uint8))
    assert "\n" not in str(fault.value)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="no depth network in"):
        load_network(str(path))
    path.with_suffix(".json").unlink()
    with pytest.raises(UserError, match=r"has no description beside it: write .*tiny\.json with"):
        load_network(str(path))
