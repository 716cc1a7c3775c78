"""The demo refuses frames that it cannot use before any work."""

import cv2
import numpy as np

from zoerefine.cli import main


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
