"""What an inference evaluates and draws is what it has made, whoever else writes to its folder."""

import json
import shutil
from pathlib import Path

import pytest

from zoerefine.depth.exporting.bundle.bundle import copy_bundle, read_bundle

FOLDERS = ("--rgb", "rgb", "--depth", "zoe", "--out", "out")
OTHER_WORK = ["--rgb rgb2", "--depth zoe2", "--points points", "--eval true",
              "--colors", "--clouds", "--confidence", "--stream"]  # fmt: skip


def test_two_commands_with_other_bundles_inputs_or_options_do_not_write_to_one_folder(
    bundle, infer, alone, make_pair, beside
):
    make_pair("a/0")
    for name in ("rgb", "zoe"):
        shutil.copytree(name, f"{name}2")
    Path("points/a").mkdir(parents=True)
    Path("points/a/0.csv").write_text("x,y,metres\n10,10,2\n")
    copy_bundle(read_bundle(bundle), Path("other.ts"), {"run": "another"}, {})
    refused = []

    def start_others():
        started = [[bundle, *FOLDERS, *more.split()] for more in OTHER_WORK]
        for words in (["other.ts", *FOLDERS], *started):
            done = alone(*words, code=2)
            refused.append(done.err.splitlines()[-1])

    beside(start_others)
    infer(*FOLDERS)
    assert len(refused) == 9
    for line in refused:
        assert "another inference with other inputs or options is writing to --out out" in line
    infer(*FOLDERS, "--clouds")  # one after the other is allowed


@pytest.mark.parametrize(
    "words", [["--eval", "true"], ["--colors"], ["--picture", "a.png"], ["--video", "a.mp4"]]
)
def test_depth_that_was_replaced_after_it_was_made_is_not_evaluated_or_drawn(
    infer, make_pair, beside, words
):
    make_pair("0")
    make_pair("1", seed=1)
    beside(lambda: shutil.copy("out/depth/0.png", "out/depth/1.png"))
    done = infer(*FOLDERS, *words, code=1 if "--eval" in words else 2)
    assert "out/depth/1.png was replaced after it was made" in done.err
    if "--eval" in words:
        assert "compared with the true depth of 1 frames" in done.out


def test_confidence_that_was_replaced_after_it_was_made_is_not_drawn(infer, make_pair, beside):
    make_pair("0")
    beside(lambda: shutil.copy("out/depth/0.png", "out/confidence/0.png"))
    done = infer(*FOLDERS, "--confidence", "--picture", "a.png", code=2)
    assert "out/confidence/0.png was replaced after it was made" in done.err


def test_results_of_another_bundle_do_not_stay_beside_depth_of_this_one(
    bundle, infer, alone, make_pair
):
    copy_bundle(read_bundle(bundle), Path("other.ts"), {"run": "another"}, {})
    for number in range(2):
        make_pair(str(number), seed=number)
    every = "--eval", "true", "--colors", "--confidence", "--clouds"
    infer(*FOLDERS, *every)
    first = json.loads(Path("out/outputs.json").read_text())
    report = json.loads(Path("out/metrics.json").read_text())
    for key in ("bundle", "commit"):
        assert report[key] == first[key]
    infer(*FOLDERS)  # the same bundle leaves them
    further = [Path(f"out/{name}") for name in ("colors/0.png", "confidence/0.png", "clouds/0.ply")]
    assert all(path.exists() for path in (*further, Path("out/metrics.json")))

    shutil.copy("zoe/1.png", "out/confidence/1.png")  # another program's
    done = alone("other.ts", *FOLDERS)
    assert json.loads(Path("out/outputs.json").read_text())["bundle"] != first["bundle"]
    assert not any(path.exists() for path in (*further, Path("out/metrics.json")))
    assert Path("out/confidence/1.png").read_bytes() == Path("zoe/1.png").read_bytes()
    assert "out/metrics.json was of another bundle or commit, and was removed" in done.err


def test_depth_of_another_bundle_that_stays_in_the_folder_is_named(bundle, infer, alone, make_pair):
    copy_bundle(read_bundle(bundle), Path("other.ts"), {"run": "another"}, {})
    for number in range(3):
        make_pair(str(number), seed=number)
    line = "out/depth still has depth of another bundle or of other inputs, of frames that were not"
    assert line not in infer(*FOLDERS).err
    make_pair("1", seed=5)
    Path("zoe/1.png").write_bytes(b"no picture")  # the inputs are others, and cannot be read
    Path("zoe/2.png").unlink()
    Path("rgb/2.jpg").unlink()  # the same bundle has made it
    done = infer(*FOLDERS, code=1)
    assert f"{line} refined now: 1\n" in done.err
    done = alone("other.ts", *FOLDERS, code=1)
    assert f"{line} refined now: 1, 2\n" in done.err


def test_metrics_of_other_frames_or_inputs_do_not_stay_beside_new_depth(infer, make_pair):
    report = Path("out/metrics.json")
    for number in range(2):
        make_pair(str(number), seed=number)
    measured = infer(*FOLDERS, "--eval", "true")
    assert "removed" not in measured.err
    infer(*FOLDERS, "--clouds")  # frames are made again, their depth is the same
    assert report.exists()

    for change in (lambda: make_pair("0", seed=5), lambda: make_pair("2", seed=2)):
        change()
        done = infer(*FOLDERS)
        assert "out/metrics.json was of other frames or inputs, and was removed" in done.err
        assert not report.exists()
        assert "removed" not in infer(*FOLDERS, "--eval", "true").err
        assert report.exists()
    make_pair("3", seed=3)
    done = infer(*FOLDERS, "--eval", "true")
    assert "removed" not in done.err and json.loads(report.read_text())["frames"] == 4
