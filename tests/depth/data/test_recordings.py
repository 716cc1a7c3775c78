"""Recordings in TUM's and ScanNet's formats: which files are a frame, and what is left over."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth.data.conftest import constant_network
from zoerefine.base.errors import UserError
from zoerefine.base.files.images import jpeg_bytes, write_png
from zoerefine.cli import main
from zoerefine.depth.data.cache.decode import read_frame
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.dataset import Clip
from zoerefine.depth.data.inspect.inspection import inspect
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.data.layouts import readers
from zoerefine.depth.data.layouts.tum import TUM, associate
from zoerefine.depth.data.networks.add_pseudo import add_pseudo_depth
from zoerefine.depth.exporting.source import sample_frames
from zoerefine.depth.infer.point_cloud import VERTEX
from zoerefine.depth.infer.room import Room

RGB = np.full((6, 8, 3), 90, np.uint8)
PSEUDO = np.full((6, 8), 3 * 256, np.uint16)


def write_file(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def write_image(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_png(path, pixels)


# TUM


@pytest.fixture
def tum(tmp_path):
    """Write a recording: tum(name, pictures, depths) -> its folder. Pictures and depths are time
    stamps; the k-th depth is k + 1 metres everywhere."""

    def write(name="rec", pictures=("10.00", "10.04"), depths=("10.01", "10.05"), pseudo=()):
        folder = tmp_path / "data" / name
        for stamp in pictures:
            write_image(folder / "rgb" / f"{stamp}.png", RGB)
        for k, stamp in enumerate(depths, 1):
            write_image(folder / "depth" / f"{stamp}.png", np.full((6, 8), k * 5000, np.uint16))
        write_list(folder / "rgb.txt", "rgb", pictures)
        write_list(folder / "depth.txt", "depth", depths)
        for stamp in pseudo:
            write_image(folder / "pseudo" / f"{stamp}.png", PSEUDO)
        return folder

    return write


def write_list(path, folder, stamps):
    lines = [f"{stamp} {folder}/{stamp}.png\n" for stamp in stamps]
    write_file(path, "".join(["# color images\n", "# timestamp filename\n", "\n", *lines]))


def test_tum_recordings_below_one_folder_are_a_clip_and_a_scene_each(tum):
    stamps = ("10.00", "10.04")
    root = tum("desk", pseudo=stamps).parent
    tum("office", pictures=("1.0",), depths=("1.02",), pseudo=("1.0",))
    dataset = readers.open_dataset(root)
    assert dataset.layout == "tum"
    assert dataset.clips == (Clip("desk", "desk"), Clip("office", "office"))
    assert [(f.clip, f.name) for f in dataset.frames] == [
        ("desk", "10.00"), ("desk", "10.04"), ("office", "1.0")]  # fmt: skip
    assert [f.depth.stem for f in dataset.frames] == ["10.01", "10.05", "1.02"]
    assert [f.zoe.stem for f in dataset.frames] == ["10.00", "10.04", "1.0"]
    assert not dataset.unpaired
    report, faults = inspect(dataset)
    assert "depth: 1.00 to 2.00 m, 100% of the pixels are valid" in report
    assert not faults
    one = readers.open_dataset(root / "office")  # one recording is a data set, too
    assert (one.scenes, len(one.frames)) == (("office",), 1)
    depth = root / "office" / "depth"
    assert readers.stated_encodings([depth]) == {depth: TUM}


def test_tum_frames_come_in_the_order_of_their_times(tum):
    folder = tum(pictures=("10.00", "9.00", "100.00"), depths=("10.01", "9.01", "100.01"))
    frames = readers.open_dataset(folder).frames
    assert [frame.name for frame in frames] == ["9.00", "10.00", "100.00"]


def test_tum_files_without_a_partner_are_listed_and_never_used(tum):
    folder = tum(pictures=("1", "2", "3"), depths=("1.021", "2.02", "9"), pseudo=("7",))
    dataset = readers.open_dataset(folder)
    assert [frame.name for frame in dataset.frames] == ["2"]  # 0.02 s apart is just enough
    listed = "\n".join(dataset.unpaired)
    assert len(dataset.unpaired) == 5
    assert "rgb/1.png" in listed and "rgb.txt line 4) has no depth within 0.02 s" in listed
    assert "rgb/3.png" in listed
    assert "depth/1.021.png" in listed and "depth/9.png" in listed
    assert "depth.txt line 6) has no picture within 0.02 s" in listed
    assert "pseudo/7.png belongs to no frame" in listed
    assert inspect(dataset)[1] == 6  # and the frame without pseudo depth


def test_tum_pseudo_depth_may_be_listed_by_time_stamp(tum):
    folder = tum(pseudo=("10.04",))
    write_image(folder / "zoe" / "x.png", PSEUDO)
    write_file(folder / "pseudo.txt", "10.001 zoe/x.png\n99 zoe/x.png\n")
    dataset = readers.open_dataset(folder)
    assert [frame.zoe.stem for frame in dataset.frames] == ["x", "10.04"]
    assert len(dataset.unpaired) == 1 and "pseudo.txt line 2" in dataset.unpaired[0]


@pytest.mark.parametrize("several", [False, True])
def test_pseudo_depth_of_tum_recordings_is_found_after_it_was_made(tum, several):
    root = tum("a").parent if several else tum("a")
    assert add_pseudo_depth(readers.open_dataset(root), constant_network(), batch=2) == 2
    cache = build_cache(readers.open_dataset(root), 6, 8, root / "caches")
    np.testing.assert_array_equal(cache.read(1)["zoe"], PSEUDO)
    np.testing.assert_allclose(cache.read(1)["depth"] * cache.depth_scale, 2.0)


def test_tum_intrinsics_are_read_from_a_file(tum):
    folder = tum()
    assert readers.open_dataset(folder).frames[0].intrinsics is None
    write_file(folder / "intrinsics.txt", "# fx fy cx cy\n525 526 319.5 239.5\n")
    assert readers.open_dataset(folder).frames[1].intrinsics == Intrinsics(525, 526, 319.5, 239.5)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("rgb.txt", "# a\nnoon rgb/10.00.png\n", r"rgb\.txt line 2: expected a time stamp"),
        ("rgb.txt", "10.00\n", r"rgb\.txt line 1: expected a time stamp .*got '10\.00'"),
        *(("rgb.txt", f"{stamp} rgb/10.00.png\n", r"rgb\.txt line 1: expected a time stamp in sec")
          for stamp in ("1e999999999", "1e999998", "nan", "-inf", "9" * 5000)),
        ("depth.txt", "10.00 depth/0.png\n", r"depth\.txt line 1: no file depth/0\.png"),
        ("rgb.txt", "10.00 rgb/10.00.png\n10.04 rgb/10.00.png\n", "line 2: another picture is"),
        ("rgb.txt", b"10.00 rgb/\xfc.png\n", r"rgb\.txt line 1: byte 0xfc is not UTF-8"),
        ("intrinsics.txt", "525 525 319.5\n", r"intrinsics\.txt: intrinsics are four numbers"),
        ("intrinsics.txt", "525 0 319.5 239.5\n", "fx and fy above 0; got '525 0 319.5 239.5'"),
    ],
)  # fmt: skip
def test_a_tum_recording_that_cannot_be_used_is_one_error_with_its_line(tum, name, text, words):
    folder = tum()
    write_file(folder / name, text)
    with pytest.raises(UserError, match=words):
        readers.open_dataset(folder)


def test_tum_stamps_in_nanoseconds_are_named(tum):
    folder = tum(pictures=("10000000000", "10040000000"), depths=("10010000000", "10050000000"))
    with pytest.raises(UserError, match=r"of 2 pictures and 2 depth files .* times in seconds"):
        readers.open_dataset(folder)


stamps = st.lists(st.integers(0, 120), max_size=12)


@settings(max_examples=200)
@given(stamps, stamps, st.integers(0, 40))
def test_association_is_one_to_one_within_the_tolerance_and_prefers_the_nearest(a, b, tolerance):
    pairs = associate(a, b, tolerance)
    assert len(set(pairs.values())) == len(pairs)
    assert all(abs(a[i] - b[j]) <= tolerance for i, j in pairs.items())
    gap_a = {i: abs(a[i] - b[j]) for i, j in pairs.items()}
    gap_b = {j: gap_a[i] for i, j in pairs.items()}
    for i, time_a in enumerate(a):
        for j, time_b in enumerate(b):
            gap = abs(time_a - time_b)
            if gap <= tolerance:  # then one of both has a partner that is no farther away
                assert min(gap_a.get(i, tolerance + 1), gap_b.get(j, tolerance + 1)) <= gap


@settings(max_examples=50)
@given(stamps, stamps, st.randoms(use_true_random=False), st.integers(0, 10**18))
def test_association_depends_on_time_differences_only(a, b, random, start):
    a, b = sorted(set(a)), sorted(set(b))
    gaps = [abs(x - y) for x in a for y in b]
    shuffled = random.sample(b, len(b))
    found = {a[i]: b[j] for i, j in associate(a, b, 20).items()}
    later = associate([x + start for x in a], [y + start for y in shuffled], 20)
    if len(set(gaps)) == len(gaps):  # without ties the pairs are the same, else their number is
        assert {a[i]: shuffled[j] for i, j in later.items()} == found
    assert associate(a, b, 20) == associate([x + start for x in a], [y + start for y in b], 20)


# ScanNet

MATRIX = "1169.6 0 646.3 0\n0 1167.1 489.9 0\n0 0 1 0\n0 0 0 1\n"


@pytest.fixture
def scannet(tmp_path):
    """Write a recording of 8x6 pictures with 4x3 depth: scannet(name, numbers) -> data folder."""

    def write(name, numbers=(0, 2, 10)):
        folder = tmp_path / "scans" / name
        for number in numbers:
            write_file(folder / "color" / f"{number}.jpg", jpeg_bytes(RGB, 95))
            depth = np.arange(12, dtype=np.uint16).reshape(3, 4) * 100 + int(number)
            write_image(folder / "depth" / f"{number}.png", depth)
            write_image(folder / "pseudo" / f"{number}.png", PSEUDO)
        write_file(folder / "intrinsic" / "intrinsic_color.txt", MATRIX)
        return tmp_path / "scans"

    return write


def test_scannet_recordings_of_one_place_are_clips_of_one_scene(scannet):
    scannet("scene0000_00")
    scannet("scene0000_01", (5,))
    root = scannet("scene0706_00", (1,))
    (root / "scene0706_00" / "pseudo" / "1.png").unlink()
    dataset = readers.open_dataset(root)
    assert dataset.layout == "scannet"
    assert dataset.scenes == ("scene0000", "scene0706")
    assert [clip.name for clip in dataset.clips] == ["scene0000_00", "scene0000_01", "scene0706_00"]
    assert [frame.rgb.stem for frame in dataset.frames] == ["0", "2", "10", "5", "1"]  # by number
    assert dataset.frames[0].intrinsics == Intrinsics(1169.6, 1167.1, 646.3, 489.9)
    one = readers.open_dataset(root / "scene0000_00")  # one recording is a data set, too
    assert (one.scenes, len(one.frames)) == (("scene0000",), 3)
    assert dataset.frames[-1].zoe is None
    assert add_pseudo_depth(dataset, constant_network(), batch=2) == 1
    assert readers.open_dataset(root).frames[-1].zoe == root / "scene0706_00" / "pseudo" / "1.png"


def test_scannet_depth_is_brought_to_the_picture_by_nearest_neighbour(scannet):
    dataset = readers.open_dataset(scannet("scene0000_00"))
    arrays = read_frame(dataset.frames[1], dataset.depth_encoding, 6, 8)
    depth = np.arange(12).reshape(3, 4) * 100 + 2
    np.testing.assert_array_equal(arrays["depth"], depth.repeat(2, 0).repeat(2, 1))
    np.testing.assert_array_equal(arrays["zoe"], PSEUDO)
    assert arrays["rgb"].shape == (6, 8, 3)
    # At the depth's own size the picture is averaged, and depth is what the file holds.
    small = build_cache(dataset, 3, 4, dataset.root / "caches").read(1)
    np.testing.assert_array_equal(small["depth"], depth)
    report, faults = inspect(dataset)
    assert "sizes: 8x6 (3)" in report and not faults


def test_an_engine_is_compared_on_pseudo_depth_on_the_pictures_grid(scannet):
    root = scannet("scene0000_00")
    for path in root.rglob("pseudo/*.png"):
        write_image(path, np.arange(12, dtype=np.uint16).reshape(3, 4) + 1)
    rgb_u8, zoe_u16 = sample_frames(readers.open_dataset(root))
    assert rgb_u8.shape == (3, 6, 8, 3) and zoe_u16.shape == (3, 6, 8)
    assert zoe_u16[0, :2, :4].tolist() == [[1, 1, 2, 2]] * 2


def test_depth_of_another_shape_than_its_picture_is_a_fault(scannet):
    root = scannet("scene0000_00", (0,))
    write_png(root / "scene0000_00" / "depth" / "0.png", np.ones((4, 3), np.uint16))
    report, faults = inspect(readers.open_dataset(root))
    assert "differ in size: 3x4, 8x6" in report and faults == 1


def test_pictures_of_another_suffix_are_named_where_there_is_no_frame(scannet):
    root = scannet("scene0000_00", (0,))
    picture = root / "scene0000_00" / "color" / "0.jpg"
    picture.rename(picture.with_suffix(".png"))
    with pytest.raises(UserError, match=r"no frames: .*0\.png belongs to no frame: there is"):
        readers.open_dataset(root)


def test_two_scannet_pictures_of_one_number_are_one_error(scannet):
    root = scannet("scene0000_00", (1, "01"))
    with pytest.raises(UserError) as error:
        readers.open_dataset(root)
    folder = root / "scene0000_00" / "color"
    assert f"{folder / '01.jpg'} and {folder / '1.jpg'} have one number" in str(error.value)


def test_scannet_files_without_a_partner_are_listed_and_never_used(scannet):
    root = scannet("scene0000_00", (0, 1, 2))
    (root / "scene0000_00" / "depth" / "1.png").unlink()
    (root / "scene0000_00" / "color" / "2.jpg").unlink()
    dataset = readers.open_dataset(root)
    assert [frame.rgb.stem for frame in dataset.frames] == ["0"]
    listed = "\n".join(dataset.unpaired)
    assert "color/1.jpg has no depth file 1.png" in listed
    assert "depth/2.png belongs to no frame: there is no color/2.jpg" in listed
    assert "pseudo/2.png belongs to no frame" in listed
    assert len(dataset.unpaired) == 3


@pytest.mark.parametrize(
    "text", ["1 2 3\n", "1 0 3 0\n0 x 3 0\n0 0 1 0\n", "1 0 3\n0 -1 3\n0 0 1\n"]
)
def test_scannet_intrinsics_that_no_camera_has_are_one_error(scannet, text):
    root = scannet("scene0000_00", (0,))
    write_file(root / "scene0000_00" / "intrinsic" / "intrinsic_color.txt", text)
    with pytest.raises(UserError, match=r"intrinsic_color\.txt"):
        readers.open_dataset(root)


def test_lists_in_which_all_stamps_are_the_same_are_refused_without_taking_memory():
    with pytest.raises(UserError, match=r"more than 100 time stamps lie within 0\.02 s of one"):
        associate([0] * 5000, [0] * 5000)


def test_a_list_may_begin_with_a_byte_order_mark(tum):
    folder = tum()
    for name in ("rgb.txt", "depth.txt"):
        write_file(folder / name, b"\xef\xbb\xbf" + (folder / name).read_bytes().split(b"\n\n")[1])
    assert len(readers.open_dataset(folder).frames) == 2


# The camera that a data set states for pictures


def test_pictures_of_a_recording_have_the_camera_that_it_states(tum, scannet):
    folder = tum()
    pictures = [frame.rgb for frame in readers.open_dataset(folder).frames]
    assert readers.stated_intrinsics(pictures) is None
    write_file(folder / "intrinsics.txt", "525 526 319.5 239.5\n")
    camera = Intrinsics(525, 526, 319.5, 239.5)
    assert readers.stated_intrinsics(pictures) == (folder, dict.fromkeys(pictures, camera))
    assert readers.stated_intrinsics(pictures[:1]) == (folder, {pictures[0]: camera})
    assert readers.stated_intrinsics([folder / "depth" / "10.01.png"]) is None

    root = scannet("scene0000_00")
    picture = root / "scene0000_00" / "color" / "2.jpg"
    camera = readers.open_dataset(root).frames[0].intrinsics
    assert readers.stated_intrinsics([picture]) == (root / "scene0000_00", {picture: camera})


def test_each_picture_has_its_own_camera_and_those_of_a_damaged_data_set_have_none(tum):
    folder = tum("one")
    write_file(folder / "intrinsics.txt", "525 526 319.5 239.5\n")
    other = tum("two")
    write_file(other / "intrinsics.txt", "400 400 319.5 239.5\n")
    both = [frame.rgb for frame in readers.open_dataset(folder.parent).frames]
    root, cameras = readers.stated_intrinsics(both)
    assert root == folder.parent
    assert [cameras[path].fx for path in both] == [525, 525, 400, 400]
    assert readers.stated_intrinsics(both[:2])[1][both[0]].fx == 525
    (other / "intrinsics.txt").unlink()
    assert readers.stated_intrinsics(both) is None
    write_file(folder / "intrinsics.txt", "525 0 319.5 239.5\n")
    assert readers.stated_intrinsics(both[:2]) is None
    assert readers.stated_intrinsics([]) is None


def test_infer_and_measure_use_the_camera_of_the_recording(tum, monkeypatch, capsys):
    folder = tum(pseudo=("10.00", "10.04"))
    write_file(folder / "intrinsics.txt", "5 6 3.5 2.5\n")
    monkeypatch.chdir(folder.parent.parent)
    write_file(folder.parent.parent / "room.csv", "frame,x,y,metres,along\n10.00,1,1,2,ray\n")
    words = ["--rgb", str(folder / "rgb"), "--depth", str(folder / "pseudo")]
    said = f"the camera is that of the data set {folder}: fx 5 fy 6 cx 3.5 cy 2.5"
    assert main(["measure", "room.csv", *words]) == 0
    assert said in capsys.readouterr().err
    assert Room.load("room.json").intrinsics == Intrinsics(5, 6, 3.5, 2.5)

    clouds = ["infer", "--measured", "room.json", *words, "--clouds"]
    assert main([*clouds, "--out", "out"]) == 0
    assert capsys.readouterr().err.count(said) == 1
    corner = np.frombuffer(Path("out/clouds/10.00.ply").read_bytes().partition(b"end_header\n")[2],
                           VERTEX)["xyz"][0]  # fmt: skip
    np.testing.assert_allclose(corner[:2] / corner[2], [-3.5 / 5, -2.5 / 6], rtol=1e-5)
    assert main([*clouds, "--out", "other", "--intrinsics", "9", "6", "3.5", "2.5"]) == 2
    assert "the room was measured with a camera of fx 5" in capsys.readouterr().err
