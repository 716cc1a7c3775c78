"""Metric points of a data set: from files through the cache to batches."""

import shutil

import numpy as np
import pytest
import torch

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.cli import main
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.loading.augment import Augmentation
from zoerefine.depth.data.loading.batches import make_loader
from zoerefine.depth.data.loading.prefetch import resize
from zoerefine.depth.data.metric_points import with_points
from zoerefine.depth.training.job import find_data, find_dataset

SIZE = 48, 64  # of the world's pictures


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    """Points of the world's frames, without noise; the first frame has none."""
    path = tmp_path_factory.mktemp("points")
    words = ["data", "points", str(world), "--noise", "0", "--count", "30", "--out", str(path)]
    assert main(words) == 0
    sorted(path.rglob("*.csv"))[0].unlink()
    return path


@pytest.fixture
def batch(world, folder, tmp_path):
    dataset = with_points(open_dataset(world), folder)
    loader = make_loader(dataset, 16, size=SIZE, order="sequential", cache_root=tmp_path)
    return next(iter(loader))


def at_their_pixels(batch):
    """Depth of the points and the true depth at their pixels, of all frames."""
    pairs = []
    for truth_m, points in zip(batch.depth_m[:, 0], batch.points, strict=True):
        x, y, depth_m, _ = points[points[:, 2] > 0].T
        pairs.append((depth_m, truth_m[y.round().long(), x.round().long()]))
    ours, theirs = (torch.cat(one) for one in zip(*pairs, strict=True))
    return ours, theirs


def test_batches_have_the_points_of_the_files(batch, folder):
    counts = (batch.points[..., 2] > 0).sum(1)
    lines = [set(path.read_text().splitlines()) for path in sorted(folder.rglob("*.csv"))]
    assert counts.tolist() == [0, *(len(one) - 1 for one in lines)]  # without the header
    torch.testing.assert_close(*at_their_pixels(batch))


def test_points_stay_at_what_they_measured(batch):
    changed = Augmentation(flip=1.0, depth_scale=0.4)(batch, 3, 1)
    torch.testing.assert_close(*at_their_pixels(changed))
    assert (changed.points[..., 0] != batch.points[..., 0]).any()
    cropped = Augmentation(crop=0.6)(batch, 3, 1)
    kept = (cropped.points[..., 2] > 0).sum()
    assert 100 < kept < 450
    ours, theirs = at_their_pixels(cropped)
    # The nearest pixel of an enlarged picture may be that of a neighbour.
    assert torch.isclose(ours, theirs, rtol=1e-4).float().mean() > 0.6
    smaller = resize(batch, (24, 32))
    assert smaller.points[..., 0].max() < 31.5 and smaller.points[..., 1].max() < 23.5


def test_a_column_of_a_list_names_the_points(world, folder, tmp_path):
    frame = open_dataset(world).frames[1]
    points = tmp_path / "some.csv"
    points.write_text("x,y,metres\n10,20,2.5\n10,20,2.5\n")  # equal: one point
    (tmp_path / "frames.csv").write_text(
        f"clip,rgb,depth,pseudo,points,depth_unit_m\nclip,{frame.rgb},{frame.depth},{frame.zoe},{points},0.04\n"
    )
    dataset = open_dataset(tmp_path)
    loader = make_loader(dataset, 1, size=(24, 32), cache_root=tmp_path / "caches")
    found = next(iter(loader)).points[0].cpu()
    np.testing.assert_allclose(found[0], [4.75, 9.75, 2.5, 0])
    assert (found[1:] == 0).all()


def test_other_points_are_other_data(world, folder, tmp_path, capsys):
    words = ["data", "pack", "--config", "configs/demo.yaml", "DATA.ROOT", str(world),
             "CACHE.ROOT", str(tmp_path)]  # fmt: skip
    places = []
    for more in ([], ["DATA.POINTS", str(folder)]):
        assert main([*words, *more]) == 0
        places.append(capsys.readouterr().out)
    assert places[0] != places[1]
    assert main([*words, "DATA.POINTS", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_points_of_the_whole_data_set_serve_a_part_of_it(world, folder, tmp_path):
    def found(points, scenes):
        words = ["DATA.ROOT", world, "DATA.POINTS", points, "DATA.SCENES", list(scenes)]
        return find_dataset(load_config("configs/demo.yaml", list(map(str, words)))).frames

    every = {frame.rgb: frame.points for frame in found(folder, [])}
    scenes = open_dataset(world).scenes
    for chosen in (scenes[:1], scenes[1:3]):
        frames = found(folder, chosen)
        assert [frame.points for frame in frames] == [every[frame.rgb] for frame in frames]
        assert sum(frame.points is None for frame in frames) == (scenes[0] in chosen)
    (lone,) = {frame.clip for frame in open_dataset(world).frames if frame.scene == scenes[0]}
    shutil.copytree(folder / lone, tmp_path / "some" / lone)
    with pytest.raises(UserError, match="has no points for any of the 4 pictures that DATA sel"):
        found(tmp_path / "some", [scenes[1]])


def test_points_of_training_data_in_another_unit_are_named(world, folder, tmp_path, capsys):
    words = ["data", "pack", "--config", "configs/demo.yaml", "DATA.ROOT", str(world),
             "CACHE.ROOT", str(tmp_path / "caches"), "DATA.POINTS"]  # fmt: skip
    for factor, code, said in (
        (1, 0, ""),
        (1 / 0.3048, 0, " times what is predicted: if they are in feet, write metres"),
        (100, 2, "it seems to be in centimetres; write metres"),
    ):
        place = tmp_path / f"{factor:.0f}"
        for path in folder.rglob("*.csv"):
            rows = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 1, 2))
            lines = [f"{x},{y},{factor * metres}" for x, y, metres in rows]
            (place / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (place / path.relative_to(folder)).write_text("\n".join(["x,y,metres", *lines]))
        assert main([*words, str(place)]) == code
        lines = capsys.readouterr().err.splitlines()
        assert ("1 of 16 frames have no points" in lines) == (code == 0)
        found = [line for line in lines if str(place) in line]
        assert [line.endswith(said) for line in found] == ([True] if said else [])


def test_held_out_scenes_without_points_are_named(world, folder, tmp_path, capsys):
    first = open_dataset(world).scenes[0]
    (clip,) = {frame.clip for frame in open_dataset(world).frames if frame.scene == first}
    shutil.copytree(folder / clip, tmp_path / "some" / clip)
    line = " frames of the test scenes have no metric points: their metrics with metric points are"
    for points, said in ((folder, False), (tmp_path / "some", True)):
        words = ["DATA.ROOT", world, "DATA.POINTS", points, "DATA.VAL_FRACTION", 0]
        words += ["DATA.TEST_SCENES", [open_dataset(world).scenes[1]]]
        find_data(load_config("configs/demo.yaml", list(map(str, words))))
        assert (line in capsys.readouterr().err) == said


@pytest.mark.parametrize("kind", [habitatdyn.DEPTH, habitatdyn.ZOE])
def test_depth_of_the_data_set_is_no_folder_of_points(world, kind):
    with pytest.raises(UserError, match=r"is the points of a picture and its .* depth: points"):
        with_points(open_dataset(world), world / kind)


@pytest.mark.parametrize(("column", "what"), [("depth", "true"), ("pseudo", "pseudo")])
def test_a_list_has_other_files_for_points_than_for_depth(world, tmp_path, column, what):
    frame = open_dataset(world).frames[0]
    files = {"depth": frame.depth, "pseudo": frame.zoe}
    row = ["a", str(frame.rgb), *map(str, files.values()), str(files[column])]
    (tmp_path / "frames.csv").write_text(
        "\n".join(["clip,rgb,depth,pseudo,points", ",".join(row)]) + "\n"
    )
    with pytest.raises(UserError, match=f"line 2: .* is the points of a picture and its {what} d"):
        open_dataset(tmp_path)


def test_a_folder_does_not_take_points_away_that_a_list_names(world, folder, tmp_path):
    listed = with_points(open_dataset(world), folder)
    rows = [f"{one.clip},{one.rgb},,{one.zoe},{one.points or ''}" for one in listed.frames]
    (tmp_path / "frames.csv").write_text("\n".join(["clip,rgb,depth,pseudo,points", *rows]) + "\n")
    dataset = open_dataset(tmp_path)
    assert with_points(dataset, folder).frames == dataset.frames
    shutil.copytree(folder, tmp_path / "some")
    lost = sorted((tmp_path / "some").rglob("*.csv"))[5]
    lost.unlink()
    with pytest.raises(
        UserError, match=f"has no points for .*/{lost.stem}.jpg, and {tmp_path} names"
    ):
        with_points(dataset, tmp_path / "some")


def test_a_folder_of_other_pictures_is_refused(world, tmp_path):
    (tmp_path / "other.csv").write_text("x,y,metres\n")
    with pytest.raises(UserError, match="has no points for any of 16 pictures"):
        with_points(open_dataset(world), tmp_path)
