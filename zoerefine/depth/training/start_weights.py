"""TRAIN.FROM: a training that starts from the best weights of another one, not from random ones."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file
from torch import Tensor

from zoerefine.base.config import Config, load_config
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import read_regular_file
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.networks.pseudo_source import source_from_json
from zoerefine.depth.data.split import Split, read_split
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.model.refiner import CALIBRATED
from zoerefine.depth.training.checkpoint import weights_digest

# Keys that decide what a network's weights mean. MAX_LOG is none: a fine-tuning may change it.
NETWORK_KEYS = (
    "NAME", "BASE", "PREDICTS", "CONFIDENCE", "POINTS", "TYPICAL_DEPTH_M", "OPTIONS",
)  # fmt: skip


@dataclass(frozen=True)
class StartWeights:
    """Weights to start from.

    Attributes:
        path: their file.
        weights: tensors of a refiner by name.
        digest: SHA-256 over them; for a run's best weights it is the run's `weights.sha256`.
        scenes: what `used_scenes` says of their run.
        pseudo: what predicted the depth that they refine, as `PseudoSource.as_json`; None where it
            is unknown.
    """

    path: Path
    weights: dict[str, Tensor]
    digest: str
    scenes: dict[str, str] | None
    pseudo: dict[str, str] | None


def find_start_weights(cfg: Config) -> StartWeights | None:
    """The weights that TRAIN.FROM names; None where it is empty.

    Raises:
        UserError: there are no such weights, they are damaged or altered, the file is no
            checkpoint (such as a bundle), or they belong to another network.
    """
    if not cfg.TRAIN.FROM:
        return None
    path = weights_file(Path(cfg.TRAIN.FROM))
    weights = read_weights(path)
    digest = weights_digest(weights)
    run = RunDir(path.parent.parent)
    recorded = run.weights_digest_file
    has_digest = path.name == "best.safetensors" and recorded.exists()  # not a copy elsewhere
    if has_digest and digest not in run.weights_digests():
        raise UserError(f"TRAIN.FROM {path} differs from {recorded.name}: it was altered")
    if run.config_file.exists():
        refuse_another_network(path, load_config(run.config_file).MODEL, cfg.MODEL)
    return StartWeights(path, weights, digest, used_scenes(run), run.recorded().get("pseudo"))


def used_scenes(run: RunDir) -> dict[str, str] | None:
    """The scenes that a run trained on or chose its weights by, by the digest of their pictures
    (`picture_digests`), with those of the weights that it started from.

    None where they are unknown: no run recorded them (a copied file, a run of an earlier version).
    """
    facts = run.recorded()
    earlier = facts.get("started_from", {"scenes": {}}).get("scenes")
    if "pictures" not in facts or earlier is None:
        return None
    split, digests = read_split(run.split_file), facts["pictures"]
    own = {digests[scene]: scene for scene in (*split.train, *split.val) if scene in digests}
    return {**earlier, **own}


def seen_before(facts: Mapping[str, Any], split: Split) -> dict[str, Any]:
    """What results.json says of a run with TRAIN.FROM; empty for another one.

    Args:
        facts: of the run's provenance.json.

    Returns:
        {"seen_before": {"val", "test": held-out scenes that the weights before it were trained on
        or chosen by, "alike": those that share only their name with such a scene}}; None in the
        place of the inner mapping where nothing is known of these weights. Where they refined the
        depth of another network, its name is in "other_pseudo".
    """
    if "started_from" not in facts:
        return {}
    now, before = (source_from_json(one.get("pseudo")) for one in (facts, facts["started_from"]))
    other = before.is_known and not before.is_like(now)
    pseudo = {"other_pseudo": str(before)} if other else {}
    if (earlier := facts["started_from"].get("scenes")) is None:
        return pseudo | {"seen_before": None}
    digests = facts["pictures"]
    found = {
        part: [scene for scene in getattr(split, part) if digests.get(scene) in earlier]
        for part in ("val", "test")
    }
    others = {*split.val, *split.test}.difference(*found.values())
    alike = sorted(others.intersection(earlier.values()))
    return pseudo | {"seen_before": found | {"alike": alike}}


def weights_file(place: Path) -> Path:
    """The file of weights of a run folder, of a path without its ending, or the file itself."""
    if place.is_dir():
        best = place / "checkpoints" / "best.safetensors"
        if not best.is_file():
            raise UserError(f"TRAIN.FROM {place}: this folder has no trained weights; give a run")
        return best
    if place.is_file():
        return place
    named = place.with_name(f"{place.name}.safetensors")
    if named.is_file():
        return named
    raise UserError(f"TRAIN.FROM {place}: no such run or file")


def read_weights(path: Path) -> dict[str, Tensor]:
    """A refiner's weights from best.safetensors or from a checkpoint of a training."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        weights: dict[str, Tensor] = state["average"]
        return weights
    except (SafetensorError, OSError) as error:
        raise UserError(f"TRAIN.FROM {path} cannot be read: {error}") from None
    except Exception:  # torch.load raises many kinds of errors
        raise UserError(
            f"TRAIN.FROM {path} is no checkpoint: give a run folder, its best.safetensors or "
            "step-*.pt; an exported bundle cannot be trained, its run can"
        ) from None


def refuse_another_network(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raises `UserError`, with the keys to set, where the weights are of another network."""
    differing = [key for key in NETWORK_KEYS if theirs[key] != ours[key]]
    if differing:
        words = " ".join(f"MODEL.{key} {_word(theirs[key])}" for key in differing)
        raise UserError(
            f"TRAIN.FROM {path} has the weights of another network than this config: add {words}"
        )


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{dict(value)}'" if isinstance(value, Mapping) else str(value)


def load_start_weights(refiner: RefinerNetwork, start: StartWeights) -> None:
    """Load weights and batch statistics; nothing else of the other training is kept.

    Its calibration is not: the new training ends with its own. Raises `UserError` where the
    weights do not fit.
    """
    own = refiner.state_dict()
    kept = {name: own[name] for name in (*CALIBRATED, "trained") if name in own}
    try:
        refiner.load_state_dict(start.weights | kept)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[1].strip()
        raise UserError(
            f"TRAIN.FROM {start.path} does not fit this network: {first} Use the MODEL keys that "
            "it was trained with"
        ) from None


FIRST_LAYER = "conv1.weight"
LARGEST_FILE = 2**36  # bytes


def load_pretrained(refiner: RefinerNetwork, path: Path) -> str:
    """Load an encoder's weights into a refiner's backbone; returns the SHA-256 of what was read.

    Names are torchvision's (`conv1.weight`, `layer1.0.conv1.weight`, ...; `fc` is ignored). In the
    first layer, the weights of log depth start as the mean of the three RGB weights, and those of
    rows at zero.

    Args:
        refiner: with a `ResNetUNet` of base 64.
        path: a file of `torch.save` (read without running code) or of safetensors.

    Raises:
        UserError: the file is missing, holds no weights, or those of another network.
    """
    found, digest = read(path)
    weights = {name: value for name, value in found.items() if not name.startswith("fc.")}
    ours = refiner.backbone.state_dict()
    if FIRST_LAYER in weights and weights[FIRST_LAYER].shape[1:2] == (3,):
        rgb = weights[FIRST_LAYER]
        mean = rgb.mean(1, keepdim=True)
        weights[FIRST_LAYER] = torch.cat([rgb, mean, torch.zeros_like(mean)], 1)
    for name, value in weights.items():
        if name not in ours or ours[name].shape != value.shape:
            have = f"has {tuple(ours[name].shape)}" if name in ours else "has no such layer"
            raise UserError(
                f"MODEL.PRETRAINED {path}: {name} {tuple(value.shape)} does not fit the refiner, "
                f"which {have}: use MODEL.NAME unet, MODEL.BASE 64 with ResNet18's weights"
            )
    if FIRST_LAYER not in weights:
        raise UserError(f"MODEL.PRETRAINED {path} has no {FIRST_LAYER}: give ResNet18's weights")
    refiner.backbone.load_state_dict(weights, strict=False)
    return digest


def read(path: Path) -> tuple[dict[str, Tensor], str]:
    """Tensors by name, and the SHA-256 of the file's bytes that they are from.

    Raises `UserError` where the file cannot be read as such.
    """
    try:
        data = read_regular_file(path, LARGEST_FILE)
        digest = hashlib.sha256(data).hexdigest()
        if path.suffix == ".safetensors":
            return load(data), digest
        weights = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        if isinstance(weights, dict) and all(isinstance(v, Tensor) for v in weights.values()):
            return weights, digest
    except OSError as error:
        raise UserError(
            f"MODEL.PRETRAINED {path} cannot be read: {error.strerror or error}"
        ) from None
    except Exception:  # each format raises its own errors, and torch's advise to run the file
        pass
    raise UserError(
        f"MODEL.PRETRAINED {path} does not hold tensors by name: give a .safetensors file, or a "
        ".pth file with a state_dict (a pickled model is code and is not loaded)"
    )
