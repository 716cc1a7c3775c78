"""The usual first data set: Pillow opens, resizes and converts one sample after another.

argv: folder of pictures, samples, DataLoader workers, decoder (pillow | draft | turbo).
`draft` lets Pillow's libjpeg decode to about the right size; `turbo` decodes with OpenCV's
libjpeg-turbo and keeps integers.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from side import BATCH, HEIGHT, WIDTH, serve
from torch.utils.data import DataLoader, Dataset

Sample = tuple[torch.Tensor, ...]


class Pictures(Dataset[Sample]):
    """Frames as jpg and png files: NAME.jpg, NAME.depth.png, NAME.zoe.png."""

    def __init__(self, folder: Path, samples: int, decoder: str) -> None:
        self.frames = sorted(folder.glob("*.jpg"))
        self.samples, self.decoder = samples, decoder

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Sample:
        rgb = self.frames[index % len(self.frames)]
        files = rgb, rgb.with_suffix(".depth.png"), rgb.with_suffix(".zoe.png")
        return tuple(map(self.turbo if self.decoder == "turbo" else self.pillow, files))

    def pillow(self, path: Path) -> torch.Tensor:
        from PIL import Image

        with Image.open(path) as image:
            if self.decoder == "draft":
                image.draft("RGB", (WIDTH, HEIGHT))
            small = image.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
            return torch.from_numpy(np.asarray(small).astype(np.float32) / 255)

    def turbo(self, path: Path) -> torch.Tensor:
        import cv2

        cv2.setNumThreads(0)
        picture = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert picture is not None
        small = cv2.resize(picture, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
        return torch.from_numpy(small)


if __name__ == "__main__":
    pictures = Pictures(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[4])
    workers = int(sys.argv[3])
    serve(lambda: DataLoader(pictures, BATCH, shuffle=True, num_workers=workers), len(pictures))
