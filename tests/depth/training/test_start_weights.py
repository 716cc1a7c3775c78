"""TRAIN.FROM: a training starts from another one's weights, and is bound to them."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.networks.pseudo_source import PseudoSource, write_source
from zoerefine.depth.exporting.build import make_manifest
from zoerefine.depth.exporting.model_card import held_out_results
from zoerefine.depth.training.checkpoint import load_refiner, save_best
from zoerefine.depth.training.job import record_provenance, run_training

QUICK = ("TRAIN.STEPS", 1, "TRAIN.LR", 0.0, "TRAIN.PRECISION", "fp32", "TRAIN.EMA", 0.0)


def places(run):
    return {
        "run": run.path,
        "best": run.checkpoints / "best",
        "file": run.checkpoints / "best.safetensors",
    }


@pytest.mark.parametrize("place", ["run", "best", "file"])
def test_training_starts_from_the_weights_but_not_from_their_calibration(finished, trainer, place):
    made = trainer("TRAIN.FROM", places(finished)[place])
    theirs = load_refiner(finished)
    for name, value in made.refiner.named_parameters():
        assert torch.equal(value.cpu(), theirs.get_parameter(name)), name
    assert made.refiner.strength == 1
    assert torch.isinf(made.refiner.limit)
    assert made.step == 0


def test_a_checkpoint_of_a_training_gives_its_averaged_weights(finished, trainer):
    (path,) = list(finished.checkpoints.glob("step-*.pt"))[-1:]
    made = trainer("TRAIN.FROM", path)
    saved = torch.load(path, weights_only=True)["average"]
    assert torch.equal(made.refiner.get_parameter("backbone.head.weight").cpu(),
                       saved["backbone.head.weight"].cpu())  # fmt: skip


def test_the_run_is_named_by_the_weights_and_not_by_their_place(finished, copied, train):
    run = train("TRAIN.FROM", finished.path, *QUICK)
    known = run.read_json(run.provenance_file)["started_from"]
    assert known["sha256"] == finished.weights_digest_file.read_text().strip()
    assert train("TRAIN.FROM", copied.path, *QUICK) == run
    refiner = load_refiner(copied)
    torch.nn.init.zeros_(refiner.get_parameter("backbone.head.bias"))
    save_best(copied, refiner.state_dict())
    assert train("TRAIN.FROM", copied.path, *QUICK) != run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("MODEL.BASE", 8), r"another network than this config: add MODEL\.BASE 4$"),
        (("MODEL.NAME", "guided"), r"add MODEL\.NAME small$"),
        (("MODEL.CONFIDENCE", "false"), r"add MODEL\.CONFIDENCE true$"),
        (("MODEL.TYPICAL_DEPTH_M", 6), r"add MODEL\.TYPICAL_DEPTH_M 2\.45960311115695$"),
        (("MODEL.POINTS", "true"), r"add MODEL\.POINTS false$"),
        (("TRAIN.FROM", "nowhere"), "no such run or file"),
        (("TRAIN.FROM", "."), "this folder has no trained weights"),
        (("MODEL.PRETRAINED", "resnet.pth"), r"TRAIN\.FROM and MODEL\.PRETRAINED are both set"),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_nothing_is_written(
    finished, tiny, tmp_path, words, message
):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=message):
        run_training(load_config(tiny, ["TRAIN.FROM", str(finished.path), *map(str, words)]))
    assert sorted(tmp_path.iterdir()) == before


def test_a_bundle_is_refused(exported_run, tiny):
    with pytest.raises(UserError, match="an exported bundle cannot be trained, its run can"):
        run_training(load_config(tiny, ["TRAIN.FROM", str(exported_run.bundle)]))


@pytest.mark.parametrize("key", ["TRAIN.FROM", "MODEL.PRETRAINED"])
def test_weights_that_are_exchanged_after_they_were_recorded_are_not_trained(
    copied, tiny, tmp_path, monkeypatch, key
):
    if key == "TRAIN.FROM":
        place, words = copied.path, []
    else:
        place, words = tmp_path / "resnet.pth", ["MODEL.NAME", "unet", "MODEL.BASE", 64]
        torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7)}, place)

    def record_and_exchange(*args, **options):
        record_provenance(*args, **options)
        if key == "TRAIN.FROM":
            refiner = load_refiner(copied)
            torch.nn.init.zeros_(refiner.get_parameter("backbone.head.bias"))
            save_best(copied, refiner.state_dict())
        else:
            torch.save({"conv1.weight": torch.ones(64, 3, 7, 7)}, place)

    monkeypatch.setattr("zoerefine.depth.training.job.record_provenance", record_and_exchange)
    cfg = load_config(tiny, [key, str(place), *map(str, (*words, *QUICK))])
    with pytest.raises(UserError, match="has changed since this training recorded it"):
        run_training(cfg)


def test_altered_weights_are_refused(copied, tiny):
    copied.weights_digest_file.write_text("0" * 64)
    with pytest.raises(UserError, match=r"differs from weights\.sha256: it was altered"):
        run_training(load_config(tiny, ["TRAIN.FROM", str(copied.path)]))
    with pytest.raises(UserError, match=r"differs from weights\.sha256: it was altered"):
        load_refiner(copied)


def split_in(folder, **parts):
    """The words that choose a split, written as a file."""
    path = folder / f"{parts['train'][0]}-{parts['test'][0]}.json"
    path.write_text(json.dumps(parts))
    return "DATA.SPLIT", path


def test_held_out_scenes_that_the_weights_before_have_seen_are_named(
    finished, copied, train, tmp_path, capsys
):
    """Also by the weights before these, and in what a bundle tells of its training."""
    old = json.loads(finished.split_file.read_text())
    (val, test), (unseen,), (chosen_by,) = old["train"], old["test"], old["val"]
    words = split_in(tmp_path, train=[unseen, chosen_by], val=[val], test=[test])
    first = train("TRAIN.FROM", finished.path, *QUICK, *words)
    assert first.results()["seen_before"] == {"val": [val], "test": [test], "alike": []}
    printed = capsys.readouterr().err
    assert f"or chosen by, 1 test scene: {test}." in printed
    assert f"or chosen by, 1 validation scene: {val}." in printed
    assert "that training did not use" not in held_out_results(first.results())
    seen = make_manifest(first, "torchscript", "fp32", 3)["training_scenes"]
    assert set(seen) == {unseen, chosen_by, val, test}

    words = split_in(tmp_path, train=[val, test], val=[chosen_by], test=[unseen])
    second = train("TRAIN.FROM", first.path, *QUICK, *words)
    assert second.results()["seen_before"]["test"] == [unseen]
    third = train("TRAIN.FROM", finished.path, *QUICK, *words)
    assert third.results()["seen_before"] == {"val": [chosen_by], "test": [], "alike": []}
    copied.provenance_file.unlink()
    capsys.readouterr()
    lone = train("TRAIN.FROM", copied.checkpoints / "best", *QUICK, name="lone")
    assert lone.results()["seen_before"] is None
    assert "unknown whether the weights of TRAIN.FROM were trained on" in capsys.readouterr().err


def test_a_scene_of_the_same_name_with_other_pictures_may_be_the_same_room(
    finished, train, world, tmp_path, capsys
):
    data = Path(shutil.copytree(world, tmp_path / "grown"))
    old = json.loads(finished.split_file.read_text())
    frames = [one for one in open_dataset(data).frames if one.scene == old["train"][0]]
    frames[0].rgb.write_bytes(frames[1].rgb.read_bytes())
    words = split_in(tmp_path, train=[*old["val"], *old["test"]], val=[], test=old["train"])
    run = train("TRAIN.FROM", finished.path, *QUICK, *words, "DATA.ROOT", data)
    alike, same = old["train"]
    assert run.results()["seen_before"] == {"val": [], "test": [same], "alike": [alike]}
    assert f"have seen other pictures in scenes of the same names: {alike}." in (
        capsys.readouterr().err
    )


def test_weights_that_refined_the_depth_of_another_network_are_named(
    finished, train, world, tmp_path, capsys
):
    data = Path(shutil.copytree(world, tmp_path / "other"))
    write_source(data / habitatdyn.ZOE, PseudoSource("netB"))
    run = train("TRAIN.FROM", finished.path, *QUICK, "DATA.ROOT", data)
    assert "trained to refine the depth of synthetic (" in capsys.readouterr().err
    train("TRAIN.FROM", run.path, *QUICK, "DATA.ROOT", data, name="same")
    assert "trained to refine" not in capsys.readouterr().err
    train("TRAIN.FROM", run.path, *QUICK, name="back")
    assert "the depth of netB, these data have that of synthetic (" in capsys.readouterr().err
