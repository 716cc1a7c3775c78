"""TRAIN.FROM: a training starts from another one's weights, and is bound to them."""

import pytest
import torch

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
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
