"""Where pictures come from: folders, patterns, single pictures, videos."""

import re
import struct
import sys
from hashlib import sha256
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from PIL import ExifTags, Image

from zoerefine.base.files.images import write_png
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.networks.pseudo_source import PICTURE
from zoerefine.depth.infer.video_damage import check_video, predicted_from


def depths(names):
    """Write pseudo depth for the frames of a video."""
    Path("zoe").mkdir(exist_ok=True)
    for name in names:
        cv2.imwrite(f"zoe/{name}.png", np.full((48, 64), 500, np.uint16))


def names(folder="out/depth"):
    return [str(p.relative_to(folder)) for p in sorted(Path(folder).rglob("*.png"))]


def test_a_video_is_refined_frame_by_frame(infer, make_video, engine):
    video = make_video("a.mp4", 10)
    depths(f"{number:06d}" for number in range(10))
    done = infer("--rgb", video, "--depth", "zoe", "--out", "out")
    assert "10 frames refined, 0 kept, 0 left out" in done.out, done.err
    capture = cv2.VideoCapture(str(video))
    for number in range(10):
        rgb = cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB)
        zoe = np.full((48, 64), 500, np.uint16)
        refined = read_zoe(Path(f"out/depth/{number:06d}.png"))
        assert np.abs(refined.astype(int) - engine(rgb[None], zoe[None])[0]).max() <= 1
    Path("out/depth/000003.png").unlink()
    again = infer("--rgb", video, "--depth", "zoe", "--out", "out")
    assert "1 frames refined, 9 kept" in again.out


def test_depth_that_was_made_for_another_picture_is_left_out(infer, make_pair):
    for name in "ab":
        make_pair(f"k/{name}")
        picture, zoe = Path(f"rgb/k/{name}.jpg"), Path(f"zoe/k/{name}.png")
        write_png(zoe, read_zoe(zoe), {PICTURE: sha256(picture.read_bytes()).hexdigest()})
    words = ("--rgb", "rgb", "--depth", "zoe", "--out", "out")
    infer(*words)
    Image.open("rgb/k/b.jpg").rotate(180).save("rgb/k/b.jpg")
    done = infer(*words, code=1)
    assert "k/b.png was made for another picture than rgb/k/b.jpg is now" in done.err
    assert "0 frames refined, 1 kept, 1 left out" in done.out
    assert "1 frames refined, 1 kept, 0 left out" in infer(*words, "--any-pseudo").out


def test_clips_behind_links_are_refined_and_a_circle_of_links_ends(infer, make_pair, tmp_path):
    for clip in "ab":
        make_pair(f"{clip}/0")
    (tmp_path / "rgb/b").rename(tmp_path / "elsewhere")
    (tmp_path / "rgb/b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/up").symlink_to(tmp_path / "rgb")
    done = infer("--rgb", "rgb", "--depth", "zoe", "--out", "out")
    assert "2 frames refined, 0 kept, 0 left out" in done.out, done.err
    assert names() == ["a/0.png", "b/0.png"]


def test_pictures_of_other_formats_are_named(infer, make_pair):
    make_pair("a/0")
    words = ("--rgb", "rgb", "--depth", "zoe", "--out", "out")
    assert "not read" not in infer(*words).err
    picture = Image.open("rgb/a/0.jpg")
    for name in ("1.webp", "2.BMP", ".3.bmp"):
        picture.save(f"rgb/a/{name}")
    done = infer(*words, "-q")
    assert "--rgb rgb: 2 .bmp, .webp pictures are not read, the first is rgb/a/1.webp" in done.err
    assert "0 frames refined, 1 kept" in done.out


@pytest.mark.parametrize("mode", [0, 0o444])
def test_a_folder_that_may_not_be_read_is_named(make_pair, tmp_path, other_user, mode):
    for clip in "ab":
        make_pair(f"{clip}/0")
    rgb = other_user.copy(tmp_path / "rgb")
    (rgb / "b").chmod(mode)
    words = ("infer", "--points", "points", "--rgb", rgb, "--out", "out")
    done = other_user.run([sys.executable, "-m", "zoerefine", *words])
    assert (done.returncode, done.stderr) == (
        2, f"error: {rgb}/b cannot be read: Permission denied\n"
    )  # fmt: skip


def test_a_video_that_is_cut_short_is_refined_up_to_its_end_and_named(infer, make_video):
    video = make_video("a.mkv", 40)
    video.write_bytes(video.read_bytes()[: video.stat().st_size // 2])
    depths(f"{number:06d}" for number in range(40))
    done = infer("--rgb", video, "--depth", "zoe", "--out", "out", code=1)
    assert "of its 40 frames: copy it again" in done.err
    assert 0 < len(names()) < 40
    assert names() == [f"{number:06d}.png" for number in range(len(names()))]


def test_videos_need_an_extra_that_is_named(infer, make_video, monkeypatch):
    depths(["000000"])
    monkeypatch.setitem(sys.modules, "av", None)
    for rgb, more in ((make_video("a.mp4", 1), ()), ("rgb", ("--video", "side.mp4"))):
        done = infer("--rgb", rgb, "--depth", "zoe", "--out", "out", *more, code=2)
        assert done.err == "error: videos need PyAV: pip install 'zoerefine[video]'\n"


@pytest.mark.parametrize(("name", "codec"), [("a.avi", "MJPG"), ("a.mp4", "mp4v")])
def test_damaged_frames_of_a_video_are_left_out_and_named(infer, tmp_path, name, codec):
    video, rng = tmp_path / name, np.random.default_rng(0)
    good = [cv2.blur(rng.integers(0, 256, (48, 64, 3)).astype(np.uint8), (5, 5)) for _ in range(40)]
    write_video(video, codec, good)
    before, data = decoded(video), bytearray(video.read_bytes())
    with av.open(str(video)) as container:
        hit = list(container.demux(video=0))[20]
    data[hit.pos + hit.size // 2 : hit.pos + hit.size] = bytes(hit.size - hit.size // 2)
    video.write_bytes(data)
    pairs = enumerate(zip(before, decoded(video), strict=True))
    changed = {f"{number:06d}" for number, (old, new) in pairs if (old != new).any()}
    assert "000020" in changed  # OpenCV returns all frames, and says nothing
    depths(f"{number:06d}" for number in range(40))
    done = infer("--rgb", video, "--depth", "zoe", "--out", "out", "--video", "side.mp4", code=1)
    left_out = set(re.findall(r"left out (\d+): \S+ is damaged at this frame", done.err))
    assert changed <= left_out and len(left_out) < 12  # up to the next key frame
    assert len(names()) == 40 - len(left_out)


def test_a_wrong_checksum_that_a_decoder_only_logs_is_damage(tmp_path):
    video = write_by_av(tmp_path / "a.mkv", "ffv1", level="3", slicecrc="1", g="4")
    change_packet(video, 5)
    assert check_video(video).damaged == {5, 6, 7}
    assert av.logging.get_level() is None  # as it was


def test_frames_after_lost_ones_have_other_numbers_and_are_left_out(tmp_path):
    """The reader of Matroska files goes on with the next cluster, of five seconds."""
    good = decoded(write_by_av(tmp_path / "a.mkv", "mpeg4", frames=80, g="1"))
    video = write_by_av(tmp_path / "b.mkv", "mpeg4", frames=80, g="1")
    start = change_packet(video, 10)
    data = bytearray(video.read_bytes())
    data[start - 20 : start + 20] = bytes(40)
    video.write_bytes(data)
    found = decoded(video)
    wrong = {n for n, picture in enumerate(found) if not np.array_equal(picture, good[n])}
    assert 40 < len(found) < 80 and len(wrong) > 40
    assert wrong <= check_video(video).damaged <= set(range(9, 80))


def test_a_frame_that_is_shown_first_and_decoded_last_counts_as_predicted():
    """Decoded: a key frame, 4, 2 (from both), the next key frame, 6 (of both), 9 of the new one."""
    keys = {0: True, 4: False, 2: False, 8: True, 6: False, 9: False}
    assert predicted_from({4}, keys) == {2, 6}


def write_by_av(path, codec, frames=12, **options):
    """A video of random pictures."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=5, options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        rng = np.random.default_rng(0)
        for _ in range(frames):
            picture = cv2.resize(rng.integers(0, 256, (12, 16, 3)).astype(np.uint8), (64, 48))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode())
    return path


H264 = {"g": "6", "bf": "0", "sc_threshold": "0"}


def trimmed(path):
    """A video of 30 frames, and the last 20 of them, as `ffmpeg -ss 2 -c copy` cuts them."""
    whole = write_by_av(path.with_name("whole.mp4"), "libx264", frames=30, **H264)
    with av.open(str(whole)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.pts, packet.dts = (
                    at - int(2 / packet.time_base) for at in (packet.pts, packet.dts)
                )
                packet.stream = stream
                target.mux(packet)
    return path


def with_pauses(path):
    """A video of 20 frames, some of which come late, as a recording of a screen."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(20):
            picture = np.full((48, 64, 3), 10 * number, np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts = number * 5 + number // 10 * 30
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def program_stream(path):
    return write_by_av(path, "mpeg2video", frames=20)


def raw_h264(path):
    return write_by_av(path, "libx264", frames=20, **H264)


@pytest.mark.parametrize(
    ("name", "make"),
    [("a.mp4", trimmed), ("a.mkv", with_pauses), ("a.mpg", program_stream), ("a.h264", raw_h264)],
)
def test_a_whole_video_has_the_frames_that_it_shows_whatever_its_container_states(
    infer, tmp_path, name, make
):
    video = make(tmp_path / name)
    assert cv2.VideoCapture(str(video)).get(cv2.CAP_PROP_FRAME_COUNT) != 20
    depths(f"{number:06d}" for number in range(20))
    done = infer("--rgb", video, "--depth", "zoe", "--out", "out")
    assert "20 frames refined, 0 kept, 0 left out" in done.out, done.err
    assert "refining: 20/20" in done.err and "beyond" not in done.err
    Path("zoe/000000.png").rename("zoe/000020.png")
    done = infer("--rgb", video, "--depth", "zoe", "--out", "out", code=2)
    assert "from 000001 to 000020, and the 20 frames of " in done.err


def test_a_damaged_frame_of_a_trimmed_video_has_its_shown_number(tmp_path):
    video = trimmed(tmp_path / "a.mp4")
    with av.open(str(video)) as container:
        packet = list(container.demux(video=0))[15]  # the first 4 are not shown
    data = bytearray(video.read_bytes())
    half = packet.size // 2
    data[packet.pos + half : packet.pos + packet.size] = bytes(packet.size - half)
    video.write_bytes(data)
    good, found = decoded(trimmed(tmp_path / "good.mp4")), decoded(video)
    wrong = {n for n, picture in enumerate(found) if not np.array_equal(picture, good[n])}
    found = check_video(video)
    assert min(wrong) == 11 and wrong <= found.damaged <= {11, 12, 13}
    assert found.count == 20 and found.has_errors


def change_packet(path, number):
    """Change a byte in the middle of a packet; returns where the packet begins."""
    with av.open(str(path)) as container:
        packet = list(container.demux(video=0))[number]
    data = bytearray(path.read_bytes())
    data[packet.pos + packet.size // 2] ^= 255
    path.write_bytes(data)
    return packet.pos


def write_video(path, codec, pictures):
    height, width = pictures[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*codec), 12, (width, height))
    for picture in pictures:
        writer.write(picture)
    writer.release()


def decoded(path):
    """All pictures of a video, as OpenCV gives them."""
    capture, found = cv2.VideoCapture(str(path)), []
    while (answer := capture.read())[0]:
        found.append(answer[1])
    return found


@pytest.mark.parametrize(
    ("pairs", "rgb", "zoe", "expected"),
    [
        ("a/left/0 a/right/0 b/left/0 b/left/1", "rgb/*/left/*.jpg", "zoe",
         "a/left/0 b/left/0 b/left/1"),
        ("a/0", "rgb/a/0.jpg", "zoe/a", "0"),
        ("17.250 17.375", "rgb", "zoe", "17.250 17.375"),
    ],
    ids=["a pattern, from its first wildcard", "a single picture", "without the last suffix"],
)  # fmt: skip
def test_names_of_results_follow_from_those_of_pictures(
    infer, make_pair, pairs, rgb, zoe, expected
):
    for name in pairs.split():
        make_pair(name)
    infer("--rgb", rgb, "--depth", zoe, "--out", "out")
    assert names() == [f"{name}.png" for name in expected.split()]


def test_two_pictures_with_the_same_name_are_refused(infer, make_pair):
    make_pair("a")
    Path("rgb/a.png").write_bytes(Path("rgb/a.jpg").read_bytes())
    done = infer("--rgb", "rgb", "--depth", "zoe", "--out", "out", code=2)
    assert "rgb/a.jpg and rgb/a.png differ only in their suffix" in done.err


def test_a_video_without_a_stated_length_is_refined_to_its_end(infer, make_pair):
    frames = []
    for number in range(4):
        make_pair(f"{number}", seed=number)
        frames.append(Path(f"rgb/{number}.jpg").read_bytes())
    Path("a.mjpeg").write_bytes(b"".join(frames))
    depths(f"{number:06d}" for number in range(4))
    done = infer("--rgb", "a.mjpeg", "--depth", "zoe", "--out", "out", "--picture", "side.png")
    assert "4 frames refined, 0 kept, 0 left out" in done.out, done.err
    assert Path("side.png").exists()


def test_turned_pictures_are_refined_as_they_are_stored_with_a_warning(infer, make_pair):
    make_pair("0")
    make_pair("1")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3
    for name in ("0", "1"):
        with Image.open(f"rgb/{name}.jpg") as image:
            image.save(f"rgb/{name}.jpg", exif=exif, quality=95)
    done = infer("--rgb", "rgb", "--depth", "zoe", "--out", "out")
    assert done.err.count("has EXIF orientation 3, which is not applied") == 1


def test_a_picture_with_too_many_pixels_is_left_out_by_its_header(infer, make_pair):
    make_pair("0")
    make_pair("1")
    data = Path("rgb/1.jpg").read_bytes()
    size, large = struct.pack(">HH", 48, 64), struct.pack(">HH", 30000, 30000)
    Path("rgb/1.jpg").write_bytes(data.replace(size, large, 1))
    done = infer("--rgb", "rgb", "--depth", "zoe", "--out", "out", code=1)
    assert "left out 1: " in done.err
    assert "30000x30000 pixels" in done.err


@pytest.mark.parametrize("kind", ["depth", "eval", "points"])
def test_files_of_a_video_that_count_from_1_are_refused(infer, make_video, kind):
    """Each would belong to the frame before it."""
    video, names = make_video("a.mp4", 4), {"depth": "z", "eval": "truth", "points": "points"}
    for option, folder in names.items():
        Path(folder).mkdir()
        for number in range(4):
            shift = option == kind
            size = (4, 4) if folder == "points" else (48, 64)
            path = f"{folder}/{number + shift:06d}.png"
            assert cv2.imwrite(path, np.full(size, 900, np.uint16))
    words = [word for option, folder in names.items() for word in (f"--{option}", folder)]
    words = ["--rgb", video, *words, "--out", "out"]
    done = infer(*words, code=2)
    assert "from 000001 to 000004, and the 4 frames of " in done.err
    assert "a.mp4 are 000000 to 000003: rename the files" in done.err
    assert not Path("out").exists()
    (Path(names[kind]) / "000004.png").rename("last.png")
    done = infer(*words, code=1 if kind == "depth" else 0)
    assert (
        f"{names[kind]} has " in done.err and "if the files count from 1, rename them" in done.err
    )
    Path("last.png").rename(Path(names[kind]) / "000004.png")
    first = Path(names[kind]) / "000000.png"
    first.write_bytes((Path(names[kind]) / "000001.png").read_bytes())
    done = infer(*words)
    assert f"{names[kind]}: 1 file of " in done.err
    assert "up to 000004, beyond the 4 frames of" in done.err


def test_pictures_that_are_their_own_depth_are_refused(infer, make_pair):
    make_pair("0")
    done = infer("--rgb", "zoe/*.png", "--depth", "zoe", "--out", "out", code=2)
    assert "zoe/0.png is the picture 0 and its pseudo depth" in done.err
