"""The demo refuses frames that it cannot use before any work."""

import cv2
import numpy as np

from zoerefine.cli import main
from zoerefine.commands.demo import clip_folders
from zoerefine.depth.data.layouts.readers import open_dataset


def test_frames_without_pseudo_depth_stop_the_demo_at_once(tmp_path, monkeypatch, capfd):
    for name, picture in (("a.jpg", np.zeros((8, 8, 3), np.uint8)),
                          ("a.png", np.ones((8, 8), np.uint16))):  # fmt: skip
        cv2.imwrite(str(tmp_path / name), picture)
    (tmp_path / "frames.csv").write_text("clip,rgb,depth,pseudo\nc,a.jpg,a.png,\n")
    monkeypatch.chdir(tmp_path)  # the demo changes the folder
    assert main(["demo", "--data", str(tmp_path)]) == 2
    shown = capfd.readouterr()
    assert "1 of 1 frames" in shown.err
    assert f"zoerefine data pseudo {tmp_path}" in shown.err
    assert shown.out == ""


def test_the_demo_says_first_where_it_writes(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("zoerefine.commands.demo.CHECKOUT", tmp_path)  # as where it is installed
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "zoerefine-demo"
    folder.mkdir()
    (folder / "data").write_text("in the way of step 1")
    assert main(["demo"]) == 2
    assert capfd.readouterr().out.splitlines()[0] == f"writing into {folder}"


def test_files_that_infer_would_not_pair_by_name_are_linked(tmp_path):
    """As side by side, or as the stamps of a recording, whose pictures have other times."""
    rows = ["clip,rgb,depth,pseudo"]
    for number in (2, 10):
        names = [f"{number}{end}" for end in (".jpg", "_d.png", "_z.png")]
        for name in names:
            cv2.imwrite(str(tmp_path / name), np.full((8, 8), number, np.uint16))
        rows.append(",".join(["c", *names]))
    (tmp_path / "frames.csv").write_text("\n".join(rows))
    (tmp_path / "pseudo.json").write_text('{"name": "net", "digest": ""}')
    dataset = open_dataset(tmp_path)
    found = clip_folders(dataset, "c", tmp_path / "links")
    for option, end in (("--rgb", ".jpg"), ("--depth", "_z.png"), ("--eval", "_d.png")):
        names = [path.resolve().name for path in sorted(found[option].glob("0*"))]
        assert names == [f"2{end}", f"10{end}"]
    assert (found["--depth"] / "pseudo.json").is_file()


def test_folders_that_infer_pairs_by_name_are_given_as_they_are(world):
    dataset = open_dataset(world)
    frames = [frame for frame in dataset.frames if frame.clip == "0000"]
    found = clip_folders(dataset, "0000", world / "links")
    assert found == {"--rgb": frames[0].rgb.parent, "--depth": frames[0].zoe.parent,
                     "--eval": frames[0].depth.parent}  # fmt: skip


def test_a_clip_in_a_folder_with_others_is_linked(tmp_path):
    rows = ["clip,rgb,depth,pseudo"]
    for folder in ("rgb", "depth", "pseudo"):
        (tmp_path / folder).mkdir()
    for number, clip in enumerate("aab"):
        files = [f"rgb/{number}.jpg", f"depth/{number}.png", f"pseudo/{number}.png"]
        for name in files:
            cv2.imwrite(str(tmp_path / name), np.full((8, 8), number, np.uint16))
        rows.append(",".join([clip, *files]))
    (tmp_path / "frames.csv").write_text("\n".join(rows))
    dataset = open_dataset(tmp_path)
    found = clip_folders(dataset, "b", tmp_path / "links")
    assert [path.resolve().name for path in found["--rgb"].iterdir()] == ["2.jpg"]


def test_a_clip_in_a_folder_with_pictures_that_are_not_listed_is_linked(tmp_path):
    for folder in ("rgb", "depth", "pseudo"):
        (tmp_path / folder).mkdir()
        for number in range(3):
            file = tmp_path / folder / f"{number}.{'jpg' if folder == 'rgb' else 'png'}"
            cv2.imwrite(str(file), np.full((8, 8), number, np.uint16))
    rows = [f"a,rgb/{number}.jpg,depth/{number}.png,pseudo/{number}.png" for number in (0, 2)]
    (tmp_path / "frames.csv").write_text("\n".join(["clip,rgb,depth,pseudo", *rows]))
    found = clip_folders(open_dataset(tmp_path), "a", tmp_path / "links")
    names = sorted(path.resolve().name for path in found["--rgb"].iterdir())
    assert names == ["0.jpg", "2.jpg"]


def test_depth_of_another_size_than_its_picture_is_brought_to_the_picture(tmp_path):
    """As in ScanNet's folders; `infer` takes files of one size."""
    coarse = np.arange(1, 13, dtype=np.uint16).reshape(3, 4)
    files = {"color/7.jpg": np.zeros((6, 8)), "depth/7.png": coarse, "pseudo/7.png": coarse + 100}
    for name, pixels in files.items():
        path = tmp_path / "s" / name
        path.parent.mkdir(parents=True)
        cv2.imwrite(str(path), pixels)
    found = clip_folders(open_dataset(tmp_path), "s", tmp_path / "links")
    for option, more in (("--depth", 100), ("--eval", 0)):
        [path] = found[option].glob("*.png")
        written = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(written, (coarse + more).repeat(2, 0).repeat(2, 1))


def test_too_few_scenes_are_named_before_any_work(tmp_path, capfd):
    for name in ("a.jpg", "a.png"):
        cv2.imwrite(str(tmp_path / name), np.ones((8, 8), np.uint16))
    (tmp_path / "frames.csv").write_text("clip,rgb,depth,pseudo\na,a.jpg,a.png,a.png\n")
    assert main(["demo", "--data", str(tmp_path)]) == 2
    assert "has 1 scene, and the demo needs 3" in capfd.readouterr().err
