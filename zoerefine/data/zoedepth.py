"""Runs ZoeDepth over pictures that have no pseudo depth.

The network and its weights come from Hugging Face transformers. The steps before and after it are
here, in batches on the device, and follow ZoeDepth's own `infer` (isl-org/ZoeDepth): padding by
reflection, the average with the mirrored picture, bicubic resizing to the picture's size.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoerefine.data import ZOEDEPTH_MODEL
from zoerefine.data.dataset import Dataset, Frame
from zoerefine.data.depth_codec import ZOEDEPTH
from zoerefine.data.readers import load_layout
from zoerefine.device import pick_device
from zoerefine.errors import UserError
from zoerefine.image_files import read_rgb, write_png
from zoerefine.progress import bar

SIZE = (384, 512)  # height and width near which the network is used
MULTIPLE = 32  # the network's input sides are multiples of this
MEAN = STD = 0.5

# Normalised pictures [B, 3, H, W] on `pick_device()` to depth [B, 1, H, W], metres.
Model = Callable[[Tensor], Tensor]


def add_pseudo_depth(dataset: Dataset, model: Model, batch: int) -> int:
    """Write a 16-bit PNG (metres * 256) for every frame without pseudo depth; returns how many.

    Files are written whole or not at all, so the same call continues after a kill. Reading, the
    network and writing overlap. Raises `UserError` where a picture cannot be read, or its pseudo
    depth cannot be written.
    """
    layout = load_layout(dataset.layout)
    frames = [frame for frame in dataset.frames if frame.zoe is None]
    paths = {frame: layout.pseudo_path(dataset.root, frame) for frame in frames}
    to_do = [frame for frame in frames if not paths[frame].exists()]
    done = len(frames) - len(to_do)
    with ThreadPoolExecutor() as pool, bar(len(frames), "ZoeDepth", "frame", done) as progress:
        written: list[Future[None]] = []
        for part, pictures in read_batches(to_do, batch, pool):
            depths = predict(model, pictures)
            for future in written:
                future.result()
            written = [
                pool.submit(write_png, paths[frame], ZOEDEPTH.encode(depth_m))
                for frame, depth_m in zip(part, depths, strict=True)
            ]
            progress.update(len(part))
        for future in written:
            future.result()
    if frames:
        layout.enter_pseudo(dataset.root, {frame.rgb: path for frame, path in paths.items()})
    return len(to_do)


def load_model(name: str) -> Model:
    """ZoeDepth on this machine's device.

    Weights are read as safetensors, which hold no code.

    Args:
        name: a folder, or a model's name on the Hugging Face hub.

    Raises:
        UserError: transformers is not installed, or there is no such model.
    """
    try:
        from transformers import ZoeDepthForDepthEstimation
    except ImportError:
        raise UserError(
            "ZoeDepth needs transformers: pip install 'zoerefine[zoedepth]' -c requirements.lock"
        ) from None
    try:
        network: Any = ZoeDepthForDepthEstimation.from_pretrained(name, use_safetensors=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"no ZoeDepth in {name} ({reason}): give --model a folder with its config.json and "
            f"model.safetensors, or a name on the hub such as {ZOEDEPTH_MODEL}"
        ) from None
    device = pick_device()
    network.to(device).eval()

    def run(pictures: Tensor) -> Tensor:
        depth_m: Tensor = network(pixel_values=pictures).predicted_depth[:, None]
        return depth_m.float()

    return in_half_precision(run, device) if device.type == "cuda" else run


def in_half_precision(model: Model, device: torch.device) -> Model:
    """The model with convolutions and matrix products in fp16, as ZoeDepth was trained.

    Pictures whose activations are too large for fp16 are computed again in float32.
    """

    def run(pictures: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.float16):
            depth_m = model(pictures)
        return depth_m if depth_m.isfinite().all() else model(pictures)

    return run


@torch.inference_mode()
def predict(model: Model, pictures: np.ndarray) -> np.ndarray:
    """Depth, float32 [B, H, W], metres, of pictures of one size, uint8 [B, H, W, 3] RGB."""
    rgb_u8 = torch.from_numpy(pictures).to(pick_device())  # as bytes, a quarter of the floats
    rgb01 = rgb_u8.permute(0, 3, 1, 2).float() / 255
    prepared = prepare(rgb01)
    depth_m = (model(prepared) + model(prepared.flip(3)).flip(3)) / 2
    return restore(depth_m, pictures.shape[1:3])[:, 0].cpu().numpy()


def padding(height: int, width: int) -> tuple[int, int]:
    """Rows and columns that ZoeDepth adds on each side, because its depth is worse at edges."""
    return int(math.sqrt(height / 2) * 3), int(math.sqrt(width / 2) * 3)


def prepare(rgb01: Tensor) -> Tensor:
    """Pad by reflection, resize and normalise [B, 3, H, W] in 0..1 for the network."""
    rows, columns = padding(*rgb01.shape[2:])
    padded = F.pad(rgb01, (columns, columns, rows, rows), mode="reflect")
    size = network_size(*padded.shape[2:])
    resized = F.interpolate(padded, size, mode="bilinear", align_corners=True)
    return (resized - MEAN) / STD


def network_size(height: int, width: int) -> tuple[int, int]:
    """The input size for a padded picture: multiples of 32 near `SIZE`, with its aspect ratio.

    Scales by the side that changes less, as ZoeDepth does.
    """
    scales = SIZE[0] / height, SIZE[1] / width
    scale = min(scales, key=lambda value: (abs(1 - value), value == scales[1]))
    return tuple(round(scale * side / MULTIPLE) * MULTIPLE for side in (height, width))  # type: ignore[return-value]


def restore(depth_m: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize the network's output and remove the padding: [B, 1, h, w] to [B, 1, H, W]."""
    (height, width), (rows, columns) = size, padding(*size)
    padded = F.interpolate(
        depth_m, (height + 2 * rows, width + 2 * columns), mode="bicubic", align_corners=False
    )
    return padded[:, :, rows : rows + height, columns : columns + width]


def read_batches(
    frames: Sequence[Frame], batch: int, pool: ThreadPoolExecutor
) -> Iterator[tuple[list[Frame], np.ndarray]]:
    """Frames and their pictures [B, H, W, 3] of one size, read one batch ahead."""

    def read(part: Sequence[Frame]) -> Any:
        return list(zip(part, pool.map(lambda frame: read_rgb(frame.rgb), part), strict=True))

    parts = [frames[start : start + batch] for start in range(0, len(frames), batch)]
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(read, parts[0]) if parts else None
        for number in range(len(parts)):
            pairs = ahead.result()  # type: ignore[union-attr]
            if number + 1 < len(parts):
                ahead = reader.submit(read, parts[number + 1])
            for _, same in groupby(pairs, key=lambda pair: pair[1].shape):
                group = list(same)
                yield [frame for frame, _ in group], np.stack([picture for _, picture in group])
