"""Pictures without depth: a network is run on them; and pseudo depth of which network is taken."""

import re
import shutil
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from zoerefine.base.files.images import read_rgb
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.networks import load_network
from zoerefine.depth.data.networks.pseudo_source import (
    SYNTHETIC,
    PseudoSource,
    source_of,
    write_source,
)
from zoerefine.depth.exporting.bundle.bundle import copy_bundle, read_bundle, read_manifest
from zoerefine.depth.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed"
)


@pytest.fixture
def refine(infer, small_zoedepth):
    """Refine rgb/ without --depth, with the small ZoeDepth, which the bundle does not know."""
    words = ("--rgb", "rgb", "--out", "out", "--depth-model", small_zoedepth, "--batch", "3")
    return partial(infer, *words, "--any-pseudo")


def test_pictures_get_zoedepths_output_and_it_is_kept(refine, make_pair, small_zoedepth, engine):
    sizes = [(48, 64), (40, 60), (48, 64)]
    for number, size in enumerate(sizes):
        make_pair(f"{number}", *size, seed=number)
    done = refine()
    assert "3 frames refined" in done.out
    network = load_network(str(small_zoedepth))
    for number in range(len(sizes)):
        rgb = read_rgb(Path(f"rgb/{number}.jpg"))
        zoe = read_zoe(Path(f"out/zoe_depth_raw/{number}.png"))
        np.testing.assert_allclose(zoe / 256, network.predict(rgb[None])[0], atol=1 / 256)
        refined = read_zoe(Path(f"out/depth/{number}.png"))
        assert np.abs(refined.astype(int) - engine(rgb[None], zoe[None])[0]).max() <= 1
    with Image.open("out/zoe_depth_raw/0.png") as image:
        assert image.info["zoerefine-depth-network"] == str(small_zoedepth)
        assert image.info["depth-scale"] == "metres = value / 256"


def test_zoedepths_output_is_used_again_until_the_model_changes(
    refine, infer, make_pair, small_zoedepth, tmp_path
):
    make_pair("0")
    refine()
    pseudo = sorted(Path("out/zoe_depth_raw").glob("*.png"))
    stamps = [path.stat().st_mtime_ns for path in pseudo]
    shutil.rmtree("out/depth")
    assert "1 frames refined, 0 kept" in refine().out
    assert [path.stat().st_mtime_ns for path in pseudo] == stamps
    assert "0 frames refined, 1 kept" in refine().out
    other = tmp_path / "другой"
    shutil.copytree(small_zoedepth, other)
    changed = ("--rgb", "rgb", "--out", "out", "--depth-model", other, "--any-pseudo")
    assert "1 frames refined, 0 kept" in infer(*changed).out
    assert [path.stat().st_mtime_ns for path in pseudo] != stamps
    shutil.rmtree("out/depth")
    again = [path.stat().st_mtime_ns for path in pseudo]
    assert "1 frames refined, 0 kept" in infer(*changed).out
    assert [path.stat().st_mtime_ns for path in pseudo] == again


def test_a_folder_has_output_of_one_network(refine, make_pair):
    """The first network's is named by hand."""
    other = PseudoSource("other", "1234")
    for name in "01":
        make_pair(name)
    refine()
    folder = Path("out/zoe_depth_raw")
    write_source(folder, other)
    Path("out/outputs.json").unlink()
    Path("rgb/0.jpg").rename("rgb/2.jpg")
    done = refine(code=2)
    assert f"{folder} has depth of other (1234), such as {folder}/0.png, and this" in done.err
    assert source_of(folder) == other and not Path("out/outputs.json").exists()

    Path("rgb/2.jpg").rename("rgb/0.jpg")
    Path("rgb/1.jpg").write_bytes(b"no picture")
    assert "1 frames refined, 0 kept, 1 left out" in refine(code=1).out
    assert source_of(folder) != other and [path.name for path in folder.glob("*.png")] == ["0.png"]


def test_kept_pseudo_depth_can_be_given_as_depth(refine, infer, make_pair):
    make_pair("0")
    refine()
    first = read_zoe(Path("out/depth/0.png"))
    words = ("--rgb", "rgb", "--depth", "out/zoe_depth_raw", "--out", "out")
    assert "--any-pseudo" in infer(*words, code=2).err  # the folder states its network
    done = infer(*words, "--any-pseudo")
    assert "1 frames refined" in done.out  # again, because its inputs are other files now
    np.testing.assert_array_equal(read_zoe(Path("out/depth/0.png")), first)


def test_a_video_without_depth_is_refined(refine, infer, make_video, small_zoedepth):
    video = make_video("a.mp4", 2)
    done = infer("--rgb", video, "--out", "out", "--depth-model", small_zoedepth, "--any-pseudo")
    assert "2 frames refined, 0 kept, 0 left out" in done.out, done.err
    assert len(list(Path("out/zoe_depth_raw").glob("*.png"))) == 2


def test_a_damaged_picture_is_left_out_before_zoedepth(refine, make_pair):
    make_pair("0")
    make_pair("1")
    Path("rgb/0.jpg").write_bytes(b"no picture")
    done = refine(code=1)
    assert "1 frames refined, 0 kept, 1 left out" in done.out
    assert not Path("out/zoe_depth_raw/0.png").exists()


def test_a_missing_zoedepth_is_one_line(infer, make_pair, tmp_path):
    make_pair("0")
    done = infer("--rgb", "rgb", "--out", "out", "--depth-model", tmp_path / "nothing", code=2)
    assert f"no depth network in {tmp_path / 'nothing'}" in done.err
    assert not Path("out").exists()


def refine_files(infer, *words, code=0):
    return infer("--rgb", "rgb", "--depth", "zoe", "--out", "out", *words, code=code)


def test_the_network_travels_from_the_data_to_checkpoint_results_and_bundle(exported_run):
    run = exported_run
    for stated in (
        load_checkpoint(run.checkpoints), run.results(), run.read_json(run.provenance_file),
        read_manifest(run.bundle),
    ):  # fmt: skip
        assert stated["pseudo"] == SYNTHETIC.as_json()


def test_depth_of_the_network_that_training_had_is_refined_without_a_word(infer, clips):
    done = refine_files(infer)
    assert "trained on" not in done.err


def test_depth_of_another_network_is_refused_until_it_is_accepted(infer, clips):
    write_source(Path("zoe/0054"), PseudoSource("other", "1234"))
    done = refine_files(infer, code=2)
    assert done.err.count("\n") == 1
    assert "zoe mixes pseudo depth of other (1234) and of synthetic" in done.err
    write_source(Path("zoe"), PseudoSource("other", "1234"))
    done = refine_files(infer, code=2)
    assert done.err.count("\n") == 1
    assert "was trained on pseudo depth of synthetic" in done.err
    assert "would refine that of other (1234)" in done.err
    assert not Path("out").exists()
    refine_files(infer, "--any-pseudo")


def test_depth_that_is_refined_already_is_refused_until_it_is_accepted(infer, clips):
    refine_files(infer)
    words = ("--rgb", "rgb", "--depth", "out/depth", "--out", "twice")
    done = infer(*words, code=2)
    assert done.err.count("\n") == 1
    assert ".png is depth that bundle " in done.err and "has refined, no pseudo depth" in done.err
    infer(*words, "--any-pseudo")


def test_depth_that_points_alone_corrected_is_named_so(infer, alone, clips):
    Path("points").mkdir()
    Path("points/0.csv").write_text("x,y,metres\n5,5,2.0\n")
    shutil.copy("rgb/0000/00000.jpg", "0.jpg")
    Path("given").mkdir()
    shutil.copy("zoe/0000/00000.png", "given/0.png")
    alone("--rgb", "0.jpg", "--depth", "given", "--points", "points", "--out", "once")
    done = infer("--rgb", "0.jpg", "--depth", "once/depth", "--out", "twice", code=2)
    assert "is depth that metric points have corrected, no pseudo depth" in done.err


def test_depth_of_unknown_origin_is_refined_with_one_note(infer, clips):
    Path("zoe/pseudo.json").unlink()
    done = refine_files(infer)
    [note] = [line for line in done.err.splitlines() if "was trained on" in line]
    assert note.endswith("it now refines that of: unknown (no pseudo.json states it)")


def test_depth_beyond_what_a_refiner_was_trained_on_is_named(infer, clips):
    assert "--depth zoe" not in refine_files(infer).err
    shutil.rmtree("out")
    for path in Path("zoe").rglob("*.png"):  # a near room's millimetres
        assert cv2.imwrite(str(path), (read_zoe(path) / 256 * 1000).clip(0, 2500).astype(np.uint16))
    [line] = [line for line in refine_files(infer).err.splitlines() if "--depth zoe" in line]
    assert re.search(r"is mostly beyond the \d\.\d+ m of the refiner's training \(median \d", line)
    assert line.endswith("if it is in millimetres, write metres * 256")


def test_a_network_that_training_did_not_have_is_refused_before_anything_is_written(
    infer, make_pair, small_zoedepth
):
    make_pair("0")
    done = infer("--rgb", "rgb", "--out", "out", "--depth-model", small_zoedepth, code=2)
    assert "accept it with --any-pseudo" in done.err
    assert not list(Path("out").rglob("*.*"))


def test_the_network_that_training_had_is_run_and_stated(
    alone, bundle, make_pair, small_zoedepth, tmp_path
):
    source = load_network(str(small_zoedepth)).source
    copy_bundle(read_bundle(bundle), tmp_path / "its.ts", {"pseudo": source.as_json()}, {})
    make_pair("0")
    done = alone("its.ts", "--rgb", "rgb", "--out", "out", "--depth-model", small_zoedepth)
    assert "trained on" not in done.err
    assert source_of(Path("out/zoe_depth_raw")) == source
