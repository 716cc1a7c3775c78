"""Pseudo depth from pictures: ZoeDepth, run over the frames that lack it.

The network and its weights are Hugging Face transformers'; what comes before and after it is done
here, in batches, on the device, as ZoeDepth's own `infer` does it (isl-org/ZoeDepth): padding by
reflection, both orientations averaged, bicubic back to the picture's size.
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

from zoerefine.data.dataset import Dataset, Frame
from zoerefine.data.depth_codec import ZOEDEPTH
from zoerefine.data.readers import layout
from zoerefine.device import pick_device
from zoerefine.errors import UserError
from zoerefine.image_files import read_rgb, write_png
from zoerefine.progress import bar

HUB_NAME = "Intel/zoedepth-nyu-kitti"
SIZE = (384, 512)  # height and width that the network is used at, nearly
MULTIPLE = 32  # of which the network's input sizes are
MEAN = STD = 0.5

Model = Callable[[Tensor], Tensor]


def add_pseudo_depth(dataset: Dataset, model: Model, batch: int) -> int:
    """Write a 16-bit png (metres * 256) for every frame that has none; returns how many.

    A frame's file is whole or not there, so the same call goes on after a kill. Reading, network
    and writing overlap. Raises `UserError` where a picture cannot be read.
    """
    reader = layout(dataset.layout)
    frames = [frame for frame in dataset.frames if frame.zoe is None]
    paths = {frame: reader.pseudo_path(dataset.root, frame) for frame in frames}
    todo = [frame for frame in frames if not paths[frame].exists()]
    done = len(frames) - len(todo)
    with ThreadPoolExecutor() as pool, bar(len(frames), "ZoeDepth", "frame", done) as progress:
        written: list[Future[None]] = []
        for some, pictures in batches_of(todo, batch, pool):
            depths = predict(model, pictures)
            for future in written:
                future.result()
            written = [
                pool.submit(write_png, paths[frame], ZOEDEPTH.encode(depth_m))
                for frame, depth_m in zip(some, depths, strict=True)
            ]
            progress.update(len(some))
        for future in written:
            future.result()
    if frames:
        reader.enter_pseudo(dataset.root, {frame.rgb: path for frame, path in paths.items()})
    return len(todo)


def load_model(name: str) -> Model:
    """ZoeDepth from a folder or the hub, on this machine's device: `predict_normalized`'s face.

    Weights are read as safetensors, which hold no code. Raises `UserError` where transformers is
    not installed, or there is no such model.
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
            f"model.safetensors, or a name on the hub such as {HUB_NAME}"
        ) from None
    device = pick_device()
    network.to(device).eval()

    @torch.inference_mode()
    def run(pictures: Tensor) -> Tensor:
        return network(pixel_values=pictures.to(device)).predicted_depth[:, None].float()

    return run


def predict(model: Model, pictures: np.ndarray) -> np.ndarray:
    """Depth of pictures of one size: uint8 [B, H, W, 3] to float32 [B, H, W], metres."""
    rgb01 = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
    prepared = prepare(rgb01)
    depth_m = (model(prepared) + model(prepared.flip(3)).flip(3)) / 2
    return restore(depth_m, pictures.shape[1:3])[:, 0].cpu().numpy()


def padding(height: int, width: int) -> tuple[int, int]:
    """Rows above and below, columns left and right, that ZoeDepth adds against edge faults."""
    return int(math.sqrt(height / 2) * 3), int(math.sqrt(width / 2) * 3)


def prepare(rgb01: Tensor) -> Tensor:
    """Pad by reflection, resize, normalise: [B, 3, H, W] in 0..1 to the network's input."""
    rows, columns = padding(*rgb01.shape[2:])
    padded = F.pad(rgb01, (columns, columns, rows, rows), mode="reflect")
    size = network_size(*padded.shape[2:])
    resized = F.interpolate(padded, size, mode="bilinear", align_corners=True)
    return (resized - MEAN) / STD


def network_size(height: int, width: int) -> tuple[int, int]:
    """Near `SIZE` with the picture's aspect, in multiples of 32: whichever side changes less."""
    scales = SIZE[0] / height, SIZE[1] / width
    scale = min(scales, key=lambda value: (abs(1 - value), value == scales[1]))
    return tuple(round(scale * side / MULTIPLE) * MULTIPLE for side in (height, width))  # type: ignore[return-value]


def restore(depth_m: Tensor, size: tuple[int, int]) -> Tensor:
    """The network's output at the picture's size, padding cut off: [B, 1, h, w] to [B, 1, H, W]."""
    (height, width), (rows, columns) = size, padding(*size)
    padded = F.interpolate(
        depth_m, (height + 2 * rows, width + 2 * columns), mode="bicubic", align_corners=False
    )
    return padded[:, :, rows : rows + height, columns : columns + width]


def batches_of(
    frames: Sequence[Frame], batch: int, pool: ThreadPoolExecutor
) -> Iterator[tuple[list[Frame], np.ndarray]]:
    """Frames and their pictures [B, H, W, 3], a batch ahead; pictures of a batch have one size."""

    def read(some: Sequence[Frame]) -> Any:
        return list(zip(some, pool.map(lambda frame: read_rgb(frame.rgb), some), strict=True))

    parts = [frames[start : start + batch] for start in range(0, len(frames), batch)]
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(read, parts[0]) if parts else None
        for number in range(len(parts)):
            pairs = ahead.result()  # type: ignore[union-attr]
            if number + 1 < len(parts):
                ahead = reader.submit(read, parts[number + 1])
            for _, same in groupby(pairs, key=lambda pair: pair[1].shape):
                some = list(same)
                yield [frame for frame, _ in some], np.stack([picture for _, picture in some])
