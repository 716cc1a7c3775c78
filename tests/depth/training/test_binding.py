"""Checkpoints, weights to start from and results belong to their run."""

import os
import shutil

import pytest
import torch

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.commands.reproduce import data_digests
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.exporting.export import export
from zoerefine.depth.training.binding import identified
from zoerefine.depth.training.job import find_run_dir, prepare
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.launch.record.comparison import MISMATCH, SAME
from zoerefine.lab.launch.record.reproduce import check_data

QUICK = ("TRAIN.STEPS", 1, "TRAIN.PRECISION", "fp32")


def test_a_checkpoint_of_the_same_shape_from_another_run_is_refused(train):
    first, second = (train(*QUICK, "SEED", seed) for seed in range(2))
    second.results_file.unlink()
    shutil.rmtree(second.checkpoints)
    shutil.copytree(first.checkpoints, second.checkpoints)
    with pytest.raises(UserError, match="belong to another run: SEED is 0 there and 1 here"):
        train(*QUICK, "SEED", 1)
    shutil.rmtree(second.checkpoints)
    assert train(*QUICK, "SEED", 1) == second
    assert second.results_file.exists()


@pytest.mark.parametrize(
    ("fact", "name"),
    [("commit", "the commit"), ("dirty_digest", "the digest of uncommitted changes")],
)
def test_a_checkpoint_of_other_code_is_refused(train, monkeypatch, fact, name):
    run = train(*QUICK)
    run.results_file.unlink()
    facts = {"repository": ".", "commit": run.read_json(run.provenance_file)["commit"]}
    changed = facts | {fact: "0" * 40}
    monkeypatch.setattr(
        "zoerefine.lab.launch.record.provenance.source_facts", lambda folder: changed
    )
    with pytest.raises(UserError, match=f"belong to another run: {name} is .* there and '0000"):
        train(*QUICK)


def list_frames(world, folder, unit):
    """A frames.csv of the world's frames whose depth is in this unit."""
    rows = [
        f"{frame.clip},{frame.scene},{frame.rgb},{frame.depth},{frame.zoe},{unit}"
        for frame in open_dataset(world).frames
    ]
    head = "clip,scene,rgb,depth,pseudo,depth_unit_m"
    (folder / "frames.csv").write_text("\n".join([head, *rows]))


def test_a_checkpoint_of_data_in_another_unit_is_refused(train, world, tmp_path):
    """The stored bytes are the same, and the metres are not."""
    words = (*QUICK, "DATA.ROOT", tmp_path)
    list_frames(world, tmp_path, 0.04)
    run = train(*words)
    run.results_file.unlink()
    list_frames(world, tmp_path, 0.02)
    with pytest.raises(UserError, match="belong to another run: the digest of the data is "):
        train(*words)
    list_frames(world, tmp_path, 0.04)
    assert train(*words) == run


def test_the_data_of_a_run_are_the_same_by_their_digest(copied):
    cache, _ = prepare(load_config(copied.config_file))
    assert cache.dataset_digest == copied.read_json(copied.provenance_file)["dataset_digest"]
    assert [one.verdict for one in check_data(copied, lambda: data_digests(copied))] == [SAME]
    provenance.add(copied, dataset_digest="0" * 64)
    assert [one.verdict for one in check_data(copied, lambda: data_digests(copied))] == [MISMATCH]
    assert data_digests(copied) == {"dataset_digest": cache.dataset_digest}


def test_a_finished_run_says_that_its_data_have_changed(train, world, tmp_path, capsys):
    shutil.copytree(world, tmp_path / "world")
    words = (*QUICK, "DATA.ROOT", tmp_path / "world")
    for _ in range(2):
        run = train(*words)
    said = capsys.readouterr().err
    assert "is finished: nothing to do" in said and "since then other" not in said
    os.utime(next((tmp_path / "world").rglob("*.jpg")))
    assert train(*words) == run
    assert f"since then other: the data in {tmp_path / 'world'}" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "world" / "zoe_depth_raw")
    assert train(*words) == run


def test_an_export_says_that_the_data_have_changed(train, world, tmp_path, capsys):
    """What engines are compared and calibrated with are then not the data of the training."""
    shutil.copytree(world, tmp_path / "world")
    run = train(*QUICK, "DATA.ROOT", tmp_path / "world")
    line = f"since then other: the data in {tmp_path / 'world'}"
    export(run, "torchscript", "fp32")
    assert line not in capsys.readouterr().err
    os.utime(next((tmp_path / "world").rglob("*.jpg")))
    shutil.rmtree(run.engine)
    export(run, "torchscript", "fp32")
    assert capsys.readouterr().err.count(line) == 1


def test_damaged_results_are_computed_again(train, capsys):
    run = train(*QUICK)
    before, weights = run.results(), run.weights_digest_file.read_text()
    for text in ("", "[]", "{}", "[" * 99_999):
        run.results_file.write_text(text)
        assert train(*QUICK) == run
        assert "results.json is written again" in capsys.readouterr().err
        assert run.results()["test"] == before["test"]
        assert run.weights_digest_file.read_text() == weights


def test_pretrained_weights_name_the_run_by_their_content(tiny, tmp_path):
    path = tmp_path / "resnet.pth"
    words = ["MODEL.NAME", "unet", "MODEL.BASE", "8", "MODEL.PRETRAINED", str(path)]
    with pytest.raises(UserError, match=r"MODEL\.PRETRAINED .*No such file"):
        find_run_dir(load_config(tiny, words))
    names = set()
    for value in (0.0, 1.0):
        torch.save({"conv1.weight": torch.full((64, 3, 7, 7), value)}, path)
        cfg = load_config(tiny, words)
        assert len(identified(cfg)["MODEL"]["PRETRAINED"]) == 64
        names.add(find_run_dir(cfg).path.name)
    assert len(names) == 2
    assert not (tmp_path / "runs").exists()
