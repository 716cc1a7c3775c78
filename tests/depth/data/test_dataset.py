"""The layouts: which folder has which, what is read from it, and how a new one is added."""

import csv
import os
import shutil

import cv2
import numpy as np
import pytest

from tests.depth.data.conftest import constant_network
from zoerefine.base import registries
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.files.images import read_rgb, write_png
from zoerefine.depth.data.cache.decode import read_depth, read_objects, read_zoe
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.depth_codec import HABITATDYN, MILLIMETRES, DepthEncoding
from zoerefine.depth.data.inspect.contact_sheet import contact_sheet
from zoerefine.depth.data.inspect.inspection import inspect
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.data.layouts.readers import open_dataset, stated_encodings
from zoerefine.depth.data.networks.add_pseudo import CAMERA, add_pseudo_depth
from zoerefine.depth.infer.sources import open_source
from zoerefine.depth.training.job import prepare

DEPTH = np.full((6, 8), 2000, np.uint16)
DEPTH[0, 0] = 0
RGB = np.zeros((6, 8, 3), np.uint8)


@pytest.fixture
def listed(tmp_path):
    """Write frames and their frames.csv: listed(header, line, ...) -> folder. The first frame is
    a.png, d.png (depth) and z.png (pseudo depth)."""
    folder = tmp_path / "listed"
    folder.mkdir()
    write_png(folder / "a.png", RGB)
    write_png(folder / "d.png", DEPTH)
    write_png(folder / "z.png", DEPTH)

    def write(*lines, encoding="utf-8"):
        (folder / "frames.csv").write_text("\n".join([*lines, ""]), encoding=encoding)
        return folder

    return write


HEADER, LINE = "clip,rgb,depth,pseudo", "k,a.png,d.png,z.png"


def test_habitatdyn_frames_are_paired_by_name_and_labelled_as_synthetic(world):
    dataset = open_dataset(world)
    assert dataset.layout == "habitatdyn"
    assert "synthetic" in dataset.label
    assert "ZoeDepth" not in dataset.pseudo_label
    assert dataset.scenes == ("scene00", "scene01", "scene02", "scene03")
    assert [frame.clip for frame in dataset.frames[::4]] == ["0000", "0054", "0108", "0162"]
    for frame in dataset.frames:
        assert {path.stem for path in frame.files.values()} == {frame.name}
        assert {path.parent.name for path in frame.files.values()} == {frame.clip}
    assert all(1 <= clip.speed <= 3 for clip in dataset.clips)
    # Intrinsics follow from its field of view, for pictures of 64x48 pixels.
    assert {frame.intrinsics for frame in dataset.frames} == {Intrinsics(32, 32, 31.5, 23.5)}
    assert "intrinsics: fx 32 fy 32 cx 31.5 cy 23.5 px (16)\n" in inspect(dataset)[0]


def test_real_habitatdyn_is_called_by_its_name(world, tmp_path):
    shutil.copytree(world, tmp_path / "real")
    (tmp_path / "real" / habitatdyn.SYNTHETIC_MARK).unlink()
    dataset = open_dataset(tmp_path / "real")
    assert (dataset.label, dataset.pseudo_label) == ("HabitatDyn", "ZoeDepth")


def test_encodings_are_those_of_the_files(world):
    dataset = open_dataset(world)
    frame = dataset.frames[5]
    stored = cv2.imread(str(frame.depth), cv2.IMREAD_UNCHANGED)
    depth = read_depth(frame.depth, dataset.depth_encoding)
    assert stored.dtype == np.uint8
    known = stored < 255
    depth_m = depth * dataset.depth_encoding.u16_unit_m
    np.testing.assert_allclose(depth_m[known], stored[known] / 255 * 10, rtol=1e-12)
    assert (depth[~known] == 0).all()
    assert read_zoe(frame.zoe).dtype == np.uint16
    assert read_objects(frame.objects).max() <= 6
    assert read_rgb(frame.rgb).shape == (48, 64, 3)


def test_a_frames_csv_lists_frames_anywhere_with_a_scene_for_each_clip(world, tmp_path):
    frames = open_dataset(world).frames
    with open(tmp_path / "frames.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["clip", "rgb", "depth", "pseudo", "objects", "depth_unit_m"])
        for frame in frames:
            rows.writerow([frame.clip, frame.rgb, frame.depth, frame.zoe, frame.objects, 10 / 255])
    dataset = open_dataset(tmp_path)
    assert dataset.layout == "frames_csv"
    assert dataset.scenes == ("0000", "0054", "0108", "0162")
    assert len(set(dataset.fingerprints().tolist())) == 16  # of files outside the folder, too
    assert [frame.rgb for frame in dataset.frames] == [frame.rgb for frame in frames]
    # The same files with the unit stated instead of known are packed to the same records.
    caches = [build_cache(open_dataset(root), 24, 32, tmp_path) for root in (world, tmp_path)]
    np.testing.assert_array_equal(*(cache.read(5)["depth"] for cache in caches))
    assert caches[0].depth_scale == pytest.approx(caches[1].depth_scale)


def test_frames_of_a_clip_come_in_the_order_of_the_numbers_in_their_names(listed):
    """As `infer` takes them: flicker and clips' order are of frames that follow one another."""
    in_time = ["a0", "a1", "a1.15", "a1.2", "a9", "a10", "a11"]
    folder = listed(HEADER, *(f"k,{name}.png,d.png,z.png" for name in sorted(in_time)))
    for name in in_time:
        write_png(folder / f"{name}.png", RGB)
    assert [frame.name for frame in open_dataset(folder).frames] == in_time
    assert list(open_source(str(folder)).names) == ["a", *in_time, "d", "z"]


def test_16_bit_depth_is_in_millimetres_unless_its_unit_is_stated(listed):
    assert open_dataset(listed(HEADER, LINE)).depth_encoding == MILLIMETRES
    folder = listed(HEADER + ",scene,depth_unit_m", LINE + ",s,0.0005", "l" + LINE[1:] + ",s,5e-4")
    assert open_dataset(folder).depth_encoding == DepthEncoding(16, 1, 0.0005)
    report, faults = inspect(open_dataset(folder))
    assert "depth: 1.00 to 1.00 m, 98% of the pixels are valid" in report
    assert not faults


def test_a_clip_whose_depth_alone_is_in_another_unit_is_named(world, tmp_path, capsys):
    root = tmp_path / "world"
    shutil.copytree(world, root)
    for path in (root / habitatdyn.ZOE / "0054").glob("*.png"):
        write_png(path, read_zoe(path) // 5)
    words = ["DATA.ROOT", root, "CACHE.ROOT", tmp_path]
    prepare(load_config("demo", list(map(str, words))))
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "in another unit?" in one]
    assert line.endswith("(in 1 of 4 clips: 0054)")


@pytest.mark.parametrize(("unit", "warned"), [("0.002", False), ("0.1", True), ("0.001", True)])
def test_a_unit_that_pseudo_depth_contradicts_is_warned_of(listed, unit, warned, tmp_path, capsys):
    folder = listed(HEADER + ",depth_unit_m", f"{LINE},{unit}")
    asked = "times the true depth: is one of them in another unit?"
    assert (asked in inspect(open_dataset(folder))[0]) == warned
    for mode in ("build", "build", "fill", "off"):  # the second one is packed already
        root = tmp_path / mode
        words = ["DATA.ROOT", folder, "DATA.VAL_FRACTION", 0, "DATA.TEST_FRACTION", 0,
                 "CACHE.MODE", mode, "CACHE.ROOT", root]  # fmt: skip
        prepare(load_config("demo", list(map(str, words))))
        found = [line for line in capsys.readouterr().err.splitlines() if asked in line]
        assert [f"{folder}: pseudo depth is " in line for line in found] == [True] * warned


def test_packing_counts_files_that_belong_to_no_frame(copied_world, tmp_path, capsys):
    next(copied_world.rglob("*.jpg")).unlink()
    words = ["DATA.ROOT", copied_world, "CACHE.ROOT", tmp_path / "caches"]
    prepare(load_config("demo", list(map(str, words))))
    line = "files without a partner: 3 (`zoerefine data inspect` lists them)"
    assert line in capsys.readouterr().err.splitlines()


def test_8_bit_depth_is_refused_unless_its_unit_is_stated(listed):
    folder = listed(HEADER, LINE)
    write_png(folder / "d.png", np.array([[0, 50], [100, 255]], np.uint8).repeat(3, 0).repeat(4, 1))
    with pytest.raises(UserError, match=r"d\.png has 8 bits.*column depth_unit_m of .*frames\.csv"):
        open_dataset(folder)
    listed(HEADER + ",depth_unit_m", LINE + ",0.02")
    dataset = open_dataset(folder)
    assert dataset.depth_encoding == DepthEncoding(8, 1, 0.02)
    assert "depth: 1.00 to 2.00 m, 50% of the pixels are valid" in inspect(dataset)[0]


def test_a_frames_csv_may_state_intrinsics_line_by_line(listed):
    folder = listed(HEADER, LINE)
    assert open_dataset(folder).frames[0].intrinsics is None
    assert "intrinsics: unknown\n" in inspect(open_dataset(folder))[0]
    write_png(folder / "b.png", RGB)
    listed(HEADER + ",fx,fy,cx,cy", LINE + ",525.5,526,319.5,239.5", "k,b.png,d.png,z.png")
    dataset = open_dataset(folder)
    assert [f.intrinsics for f in dataset.frames] == [Intrinsics(525.5, 526, 319.5, 239.5), None]
    counted = "intrinsics: fx 525.5 fy 526 cx 319.5 cy 239.5 px (1); unknown (1)\n"
    assert counted in inspect(dataset)[0]


def test_pseudo_depth_of_a_camera_that_was_corrected_is_a_fault(listed):
    folder = listed(HEADER + ",fx,fy,cx,cy", LINE + ",525,525,1,1")
    for fx, faults in ((525, 0), (524, 1)):
        camera = Intrinsics(fx, 525, 1, 1)
        write_png(folder / "z.png", DEPTH, {CAMERA: str(camera)})
        report, found = inspect(open_dataset(folder))
        assert found == faults, report
    fault = "z.png was made for another camera than fx 525 fy 525 cx 1 cy 1: run data pseudo"
    assert fault in report
    with pytest.raises(UserError, match=fault):
        build_cache(open_dataset(folder), 6, 8, folder.parent / "cache")
    listed(HEADER, LINE)  # which camera it is of now is unknown
    assert inspect(open_dataset(folder))[1] == 0


@pytest.mark.parametrize(
    ("text", "classes"),
    [("dog+dog", ("dog",)), ("toy car + cat ", ("cat", "toy car")), (" + ", ())],
)
def test_a_class_counts_once_and_spaces_around_it_do_not(listed, text, classes):
    [clip] = open_dataset(listed(HEADER + ",classes", f"{LINE},{text}")).clips
    assert clip.classes == classes


def test_the_error_of_pseudo_depth_is_that_of_the_metrics(listed):
    """Pixels beyond the range do not count, and predictions are clamped to it."""
    folder = listed(HEADER, LINE)
    depth, zoe = DEPTH.copy(), DEPTH.copy()  # truth in millimetres, pseudo depth in m / 256
    depth[:, 4:], zoe[:, :2], zoe[:, 2:] = 30_000, 768, 256 * 50
    write_png(folder / "d.png", depth)
    write_png(folder / "z.png", zoe)
    for limit_m, errors in ((10, [0.5, 4.0]), (40, [0.5, 19.0, 1 / 3])):
        columns = [2, 2, 4][: len(errors)]
        counts = np.array(columns) * 6 - np.array([1, 0, 0][: len(errors)])  # d has an invalid one
        expected = np.average(errors, weights=counts)
        report, _ = inspect(open_dataset(folder), limit_m)
        assert f"pseudo depth: AbsRel {expected:.3f} before refinement" in report


ALIKE = [("s1", "s1 "), ("room  a", "room a"), ("K\u00fcche", "Ku\u0308che")]
ONE_ROOM = [("Kitchen", "kitchen"), ("living room", "living_room"), ("a-1", "a_1"), ("r07", "r7")]
DIFFERENT = [("r0", "r00x"), ("r10", "r1"), ("v1.05", "v1.5"), ("r1_0", "r10"), ("x", "y")]


def two_clips(listed, one, other, column):
    """A list of two frames in clips or scenes of these names."""
    names = ({"clip": c, "scene": "s"} | {column: n} for c, n in (("k", one), ("l", other)))
    first, second = (f"{one['clip']},{{}}.png,{{}}.png,{{}}.png,{one['scene']}" for one in names)
    folder = listed(HEADER + ",scene", first.format(*"adz"), second.format(*"bef"))
    for source, copied in zip("adz", "bef", strict=True):
        shutil.copy(folder / f"{source}.png", folder / f"{copied}.png")
    return folder


@pytest.mark.parametrize(
    ("column", "one", "other"),
    [("clip", *names) for names in ALIKE] + [("scene", *names) for names in ALIKE + ONE_ROOM],
)
def test_names_that_look_alike_are_refused(listed, one, other, column):
    with pytest.raises(UserError, match=f"the {column}s .* look alike"):
        open_dataset(two_clips(listed, one, other, column))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_scenes_of_different_names_are_different_rooms(listed, one, other):
    assert set(open_dataset(two_clips(listed, one, other, "scene")).scenes) == {one, other}


def test_a_scene_that_some_lines_leave_empty_is_refused(listed):
    """Its clip would be a room of its own beside other clips of that room."""
    with pytest.raises(UserError, match=r"frames\.csv line 3: scene is empty, and line 2 has one"):
        open_dataset(two_clips(listed, "kitchen", "", "scene"))


def test_a_file_of_other_bits_than_the_rest_is_a_fault(listed):
    folder = listed(HEADER, LINE, "k,b.png,e.png,z.png")
    write_png(folder / "b.png", RGB)
    write_png(folder / "e.png", DEPTH.astype(np.uint8))
    report, faults = inspect(open_dataset(folder))
    assert "e.png has 8 bits; depth of its data set has 16" in report
    assert faults == 1


def test_a_folder_of_depth_has_the_encoding_that_its_data_set_states(listed, world, tmp_path):
    listed(HEADER + ",depth_unit_m", LINE + ",0.0005")
    (tmp_path / "listed" / "other").mkdir()
    expected = {
        tmp_path / "listed": DepthEncoding(16, 1, 0.0005),
        tmp_path / "listed" / "other": None,
        world / habitatdyn.DEPTH / "0054": HABITATDYN,
        world / habitatdyn.ZOE: None,
        tmp_path: None,
    }
    assert stated_encodings(expected) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_list_may_begin_with_a_byte_order_mark_which_is_kept(listed, encoding):
    folder = listed("clip,rgb,depth,pseudo", "Küche,a.png,d.png,", encoding=encoding)
    assert open_dataset(folder).frames[0].clip == "Küche"
    add_pseudo_depth(open_dataset(folder), constant_network(), 1)
    assert open_dataset(folder).frames[0].zoe == folder / "pseudo" / "Küche" / "a.png"
    text = (folder / "frames.csv").read_bytes().decode(encoding)
    assert text.startswith("clip,rgb,depth,pseudo\r\n")


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("latin-1", r"frames\.csv line 2: byte 0xfc is not UTF-8"),
        ("utf-16", r"frames\.csv line 1: the file is UTF-16; save it as UTF-8"),
        ("utf-16-le", r"frames\.csv line 1 has a zero byte"),
    ],
)
def test_a_list_in_another_encoding_is_one_error_with_its_line(listed, encoding, words):
    line = LINE if encoding == "utf-16-le" else LINE.replace("k", "Küche")
    with pytest.raises(UserError, match=words):
        open_dataset(listed(HEADER, line, encoding=encoding))


UNIT = HEADER + ",depth_unit_m"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((HEADER, LINE, "k,b.png,d.png,z.png"), r"line 3: no file b\.png \(rgb\)"),
        ((HEADER, LINE.replace("a.png", "")), "line 2: clip and rgb must not be empty"),
        ((HEADER, LINE, LINE), "clip k has two pictures a"),
        ((HEADER, LINE + ",surplus"), "line 2 has more values than columns"),
        ((HEADER.replace("pseudo", "zoe"), LINE), "has no column pseudo"),
        ((HEADER + ",speed", LINE + "," + "9" * 5000), "line 2: speed must be whole m/s"),
        ((HEADER + ",rgb", LINE + ",a.png"), "line 1 has two columns 'rgb'"),
        ((HEADER + ", scene", LINE + ",s"), "line 1 has a column ' scene': write 'scene'"),
        ((HEADER + ",Depth_Unit_m", LINE + ",1"), "'Depth_Unit_m': write 'depth_unit_m'"),
        ((HEADER.replace(",", ";"), LINE), "has no column .*; separate columns by commas"),
        ((HEADER, LINE + "x" * 200_000), r"line 2 is no CSV \(field larger than"),
        ((HEADER + "x" * 200_000, LINE), r"line 1 is no CSV \(field larger than"),
        ((HEADER + ",speed", LINE + ",fast"), "line 2: speed must be whole m/s, got 'fast'"),
        ((HEADER + ",fx,fy,cx,cy", LINE + ",525,525,,239"), "line 2: intrinsics are four numbers"),
        ((HEADER + ",fx,fy,cx,cy", LINE + ",-1,525,319,239"), "line 2: .*got '-1 525 319 239'"),
        ((HEADER + ",speed", LINE + ",1", LINE + ",3"),
         "line 3: clip k has speed 3 here and 1 before"),
        ((HEADER + ",classes", LINE + ",dog+cat", LINE + ","),
         r"line 3: clip k has classes none here and cat\+dog before"),
        ((HEADER + ",fx", LINE + ",525"), "line 2: intrinsics are four numbers"),
        ((UNIT, LINE + ",0.01", "k,d.png,,,0.02"), "line 3: depth_unit_m is 0.02 here"),
        ((UNIT, LINE + ",0.01", "k,d.png,,,"), "line 3: depth_unit_m is empty here"),
        ((HEADER, LINE, "l,../listed/a.png,,"),
         r"line 3: .*a\.png \(rgb\) is in scene l here and in scene k in line 2, so"),
        ((HEADER, LINE, "l,frames.csv,d.png,"), r"line 3: .*d\.png \(depth\) is in scene l here"),
        ((UNIT, LINE + ",1_0"), "line 2: depth_unit_m must be .* above 0; got '1_0'"),
        ((UNIT, LINE + ",٠.٠٠١"), "line 2: depth_unit_m must be"),
        ((HEADER + ",fx,fy,cx,cy", LINE + ",5_25,525,319,239"), "line 2: .*got '5_25 525 319 239'"),
        ((UNIT, LINE + ",mm"), "line 2: depth_unit_m must be .* above 0; got 'mm'"),
        ((UNIT, LINE + ",-0.001"), "line 2: depth_unit_m must be"),
        ((UNIT, LINE + ",inf"), "line 2: depth_unit_m must be"),
    ],
)  # fmt: skip
def test_a_list_that_cannot_be_used_is_one_error_with_its_line(listed, lines, words):
    with pytest.raises(UserError, match=words):
        open_dataset(listed(*lines))


def test_one_picture_may_be_in_several_clips_of_one_scene(listed):
    """Such as with the pseudo depth of two networks."""
    folder = listed(HEADER + ",scene", LINE + ",s", "l,a.png,d.png,,s")
    assert [frame.clip for frame in open_dataset(folder).frames] == ["k", "l"]


@pytest.mark.parametrize("clip", ["../..", "/tmp", "a/../../b", ".."])
def test_a_clip_never_leads_out_of_the_folder(listed, clip, refused):
    folder = listed(HEADER, f"{clip},a.png,d.png,")
    for verb in ("pseudo", "inspect"):
        line = refused(verb, folder)
        assert f"the clip or scene {clip!r} leads out of the folder: rename it" in line


def test_pseudo_depth_is_never_written_through_a_link(listed, tmp_path):
    folder = listed(HEADER, "k,a.png,d.png,")
    (tmp_path / "elsewhere").mkdir()
    (folder / "pseudo").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"pseudo/k/a\.png leads out of .*: replace the link"):
        add_pseudo_depth(open_dataset(folder), constant_network(), 1)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\tb", "a\u202eb", "k" * 300])
@pytest.mark.parametrize("column", ["clip", "scene"])
def test_names_that_no_message_can_show_are_one_line(listed, refused, column, name):
    values = {"clip": "k", "scene": "s"} | {column: name}
    folder = listed(HEADER + ",scene", f"{values['clip']},a.png,d.png,z.png,{values['scene']}")
    line = refused("inspect", folder)
    assert "rename it" in line and "\x1b" not in line


def test_names_and_titles_of_habitatdyn_in_another_encoding_are_one_line(copied_world, refused):
    titles = copied_world / habitatdyn.TITLES
    before = titles.read_text()
    for encoding in ("latin-1", "utf-16"):
        titles.write_text(before.replace("_", "_ü", 1), encoding=encoding)
        assert "video_name_mapping.txt line 1: " in refused("inspect", copied_world)
    titles.write_text(before)
    clip = next((copied_world / habitatdyn.RGB).iterdir())
    os.rename(clip / "00001.jpg", os.fsencode(clip) + b"/caf\xe9.jpg")
    fault = r"the frame 'caf\udce9' has control characters or is not UTF-8: rename it"
    assert fault in refused("inspect", copied_world)


def test_a_title_may_end_with_any_number_of_digits(copied_world):
    path = copied_world / habitatdyn.TITLES
    path.write_text(f"0000\troom_{'9' * 5000}\n")
    assert open_dataset(copied_world).clips[0].speed == 0


def test_a_data_set_without_any_usable_pixel_is_a_fault(listed, data_command):
    folder = listed(HEADER, LINE)
    write_png(folder / "d.png", np.full_like(DEPTH, 20_000))  # 20 m everywhere
    done = data_command("inspect", folder, code=1)
    assert "no pixel has a true depth of 0.001 to 10 m and pseudo depth" in done.out


def test_folders_that_are_no_data_set_and_lists_of_too_many_bytes_are_named(listed, tmp_path):
    os.truncate(listed(HEADER, LINE) / "frames.csv", 2**28 + 1)  # takes no disk space
    with pytest.raises(UserError, match=r"frames\.csv has 268435457 bytes, more than"):
        open_dataset(tmp_path / "listed")
    with pytest.raises(UserError, match=r"no data folder .*absent"):
        open_dataset(tmp_path / "absent")
    with pytest.raises(UserError, match=r"is no data set: it has none of .*480p, frames\.csv"):
        open_dataset(tmp_path)
    (tmp_path / "x" / habitatdyn.RGB).mkdir(parents=True)
    with pytest.raises(UserError, match="holds no frames"):
        open_dataset(tmp_path / "x")
    (tmp_path / "x" / habitatdyn.RGB / "clip").mkdir()
    (tmp_path / "x" / habitatdyn.RGB / "clip" / "00000.jpg").touch()
    with pytest.raises(UserError, match="clip folder 'clip' should be a number"):
        open_dataset(tmp_path / "x")


@pytest.mark.parametrize(("field", "words"), [("d", "d.png has no valid"), ("z", "z.png has no")])
def test_depth_without_a_valid_pixel_is_a_fault(listed, field, words):
    folder = listed(HEADER, LINE)
    write_png(folder / f"{field}.png", np.zeros_like(DEPTH))
    report, faults = inspect(open_dataset(folder))
    assert faults == 1
    assert words in report
    assert "inf" not in report and "nan" not in report
    contact_sheet(open_dataset(folder), folder / "sheet.png")
    sheet = read_rgb(folder / "sheet.png")
    assert sheet.shape == (24 + 240 + 24 + 120 + 44, 1280, 3)
    for label in (sheet[:24, :320], sheet[264:288, :160], sheet[264:288, 160:320], sheet[-44:]):
        assert (label > 200).any() and (label < 60).any()  # light text on dark


THIRD_LAYOUT = '''
"""A folder of `NAME.rgb.png` and `NAME.depth.png`, in centimetres: one clip, one scene."""
from zoerefine.depth.data.dataset import Clip, Dataset, Frame
from zoerefine.depth.data.depth_codec import DepthEncoding

MARK = "flat.txt"

def matches(root):
    return (root / MARK).is_file()

def read(root):
    frames = []
    for rgb in sorted(root.glob("*.rgb.png")):
        name = rgb.name.removesuffix(".rgb.png")
        zoe = root / f"{name}.zoe.png"
        known = zoe if zoe.name in (root / MARK).read_text().split() else None
        frames.append(Frame("all", name, "all", rgb, root / f"{name}.depth.png", known, None))
    encoding = DepthEncoding(16, 100, 1)
    return Dataset(root, "flat frames", "a network", encoding, tuple(frames), (Clip("all", "all"),))

def pseudo_path(root, frame):
    return root / f"{frame.name}.zoe.png"

def enter_pseudo(root, paths):
    (root / MARK).write_text(" ".join(path.name for path in paths.values()))
'''


def test_a_third_layout_takes_one_file_and_one_row(tmp_path, monkeypatch):
    (tmp_path / "flat_layout.py").write_text(THIRD_LAYOUT)
    monkeypatch.syspath_prepend(tmp_path)
    rows = {**registries.READERS, "flat": "flat_layout"}
    monkeypatch.setattr(registries, "READERS", registries.Registry("data layout", rows))
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "flat.txt").touch()
    for name in "ab":
        write_png(folder / f"{name}.rgb.png", RGB)
        write_png(folder / f"{name}.depth.png", DEPTH // 10)  # 2000 mm as 200 cm
    made = add_pseudo_depth(open_dataset(folder), constant_network(), batch=2)
    dataset = open_dataset(folder)
    assert (made, dataset.layout) == (2, "flat")
    record = build_cache(dataset, 6, 8, tmp_path / "caches").read(1)
    np.testing.assert_array_equal(record["depth"], DEPTH // 10)
    np.testing.assert_array_equal(record["zoe"], np.full((6, 8), 3 * 256))
    assert "depth: 2.00 to 2.00 m" in inspect(dataset)[0]
    assert stated_encodings([folder])[folder] == DepthEncoding(16, 100, 1)


def test_a_contact_sheet_never_overwrites_a_foreign_file(world, tmp_path, data_command, refused):
    picture = tmp_path / "mine.png"
    write_png(picture, RGB)
    before = picture.read_bytes()
    line = refused("inspect", world, "--picture", picture)
    assert "mine.png was not written by zoerefine" in line
    assert picture.read_bytes() == before
    for _ in range(2):
        data_command("inspect", world, "--picture", tmp_path / "sheet.png")
