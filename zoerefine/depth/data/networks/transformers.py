"""Metric depth networks of Hugging Face transformers.

ZoeDepth is run by `zoedepth.py` and Depth Pro by `predict_depth_pro`. All others are run with the
image processor that belongs to them, which also resizes their depth to the picture's size.
"""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from zoerefine.base.errors import UserError, needed
from zoerefine.base.files.atomic import digest_file
from zoerefine.base.machine.device import pick_device
from zoerefine.base.messages import one_line, visible
from zoerefine.depth.data.networks import zoedepth
from zoerefine.depth.data.networks.pseudo_source import (
    DepthNetwork,
    PseudoSource,
    no_network,
    relative_depth,
)

METRIC = ("zoedepth", "depth_pro", "glpn")  # model types that predict metres, whatever the weights
RELATIVE = ("dpt",)
CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
# Keys of these files that do not decide depth, and differ where the same network is saved again.
WRITTEN_BY = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "architectures")
MEAN = STD = 0.5  # of Depth Pro's pictures
LEAST_INVERSE, MOST_INVERSE = 1e-4, 1e4  # of its depth, per metre


def load_transformers(name: str) -> DepthNetwork:
    """A network from a folder or the hub. Its folder's own code is never run.

    Raises:
        UserError: transformers is not installed, there is no such network, or its depth is
            relative.
    """
    network, folder = load_metric(name)
    device = pick_device()
    network.to(device).eval()
    source = PseudoSource(name_of(name), digest_of(folder))
    if network.config.model_type == "zoedepth":
        model = zoedepth.model_of(network, device)
        return DepthNetwork(source, partial(zoedepth.predict, model, device))
    if network.config.model_type == "depth_pro":
        return DepthNetwork(source, partial(predict_depth_pro, network, device))
    return DepthNetwork(source, partial(predict, network, image_processor(name), device))


def load_metric(name: str) -> tuple[Any, Path]:
    """A network and the folder with its files. Errors as `load_transformers`."""
    with needed("depth networks need transformers", "zoedepth"):
        from safetensors import SafetensorError
        from transformers import AutoConfig, AutoModelForDepthEstimation
        from transformers.utils import cached_file
    network: Any
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        refuse_relative(name, config)
        network, loading = AutoModelForDepthEstimation.from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
        folder = Path(cached_file(name, CONFIG)).parent
    # Weights that do not fit are a RuntimeError.
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise no_network(visible(name), one_line(str(error))) from None
    parameters = {parameter for parameter, _ in network.named_parameters()}
    if missing := sorted(parameters & loading["missing_keys"]):
        raise no_network(visible(name), f"its weights lack {missing[0]}")
    return network, folder


def refuse_relative(name: str, config: Any) -> None:
    """Raises `UserError` for a network that does not predict metres."""
    kind = config.model_type
    # Depth Anything V2 has weights of both kinds, and says which.
    stated = config.depth_estimation_type if kind == "depth_anything" else ""
    if kind in RELATIVE or stated == "relative":
        raise relative_depth(name, kind)
    if kind not in METRIC and stated != "metric":
        raise UserError(
            f"{name} ({kind}) is not known to predict metric depth; known: {', '.join(METRIC)}, "
            "and depth_anything where its config.json says metric"
        )


def image_processor(name: str) -> Any:
    """What prepares pictures for a network. Raises `UserError` where it cannot be loaded."""
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
    except (ImportError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"the image processor of {name} cannot be loaded ({reason}): it needs its {PROCESSOR}, "
            "and for some networks torchvision"
        ) from None


@torch.inference_mode()
def predict(network: Any, processor: Any, device: torch.device, pictures: np.ndarray) -> np.ndarray:
    """Depth, float32 [B, H, W], metres, of pictures of one size, uint8 [B, H, W, 3] RGB."""
    height, width = pictures.shape[1:3]
    inputs = processor(images=list(pictures), return_tensors="pt").to(device)
    sizes = [(height, width)] * len(pictures)
    found = processor.post_process_depth_estimation(network(**inputs), target_sizes=sizes)
    depths = [one["predicted_depth"].float().reshape(height, width) for one in found]
    return torch.stack(depths).cpu().numpy()


@torch.inference_mode()
def predict_depth_pro(network: Any, device: torch.device, pictures: np.ndarray) -> np.ndarray:
    """`predict` with Depth Pro.

    The steps before and after the network are those of its image processor, which needs
    torchvision; these need torch alone.
    """
    rgb_u8 = torch.from_numpy(pictures).to(device)
    rgb = (rgb_u8.permute(0, 3, 1, 2).float() / 255 - MEAN) / STD
    side = round(network.config.patch_size / min(network.config.scaled_images_ratios))
    prepared = F.interpolate(rgb, (side, side), mode="bilinear", align_corners=False)
    found = network(pixel_values=prepared)
    inverse = found.predicted_depth[:, None].float()
    if found.field_of_view is not None:
        # As if the focal length were the picture's width: times their ratio.
        half_angle = torch.deg2rad(found.field_of_view.float()) / 2
        inverse = inverse * (2 * torch.tan(half_angle).view(-1, 1, 1, 1))
    size = pictures.shape[1:3]
    inverse = F.interpolate(inverse, size, mode="bilinear", align_corners=False)
    return (1 / inverse.clamp(LEAST_INVERSE, MOST_INVERSE))[:, 0].cpu().numpy()


def name_of(name: str) -> str:
    """What a network is called: its folder's name, or its name on the hub."""
    own = Path(name).resolve().name if Path(name).is_dir() else ""
    return visible(own or name)


def digest_of(folder: Path) -> str:
    """SHA-256 of a network's weights and of what its two config files say of it."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name} {digest_file(path)}\n".encode())
    for name in (CONFIG, PROCESSOR):
        path = folder / name
        facts = json.loads(path.read_bytes()) if path.exists() else {}
        kept = {key: value for key, value in facts.items() if key not in WRITTEN_BY}
        digest.update(f"{name} {json.dumps(kept, sort_keys=True)}\n".encode())
    return digest.hexdigest()
