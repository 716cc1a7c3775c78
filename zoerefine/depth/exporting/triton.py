"""An ONNX bundle as a model repository of NVIDIA's Triton Inference Server."""

from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing, write_text
from zoerefine.depth.exporting.bundle.bundle import read_bundle
from zoerefine.depth.points import channels_of

MODEL = "refiner"  # its name in the repository
MOST_FRAMES = 16  # of a batch: what engines are checked at
MOST_WAIT_US = 2000  # for further requests of a batch; a frame at 24 Hz has 41,667
DEPTH = ("TYPE_UINT16", [-1, -1])


def write_model_repository(bundle: Path, folder: Path) -> Path:
    """Write `refiner/1/model.onnx`, which is the bundle, and `refiner/config.pbtxt`.

    Returns the folder of the model.

    Raises:
        UserError: the bundle is not of the kind onnx, or the folder cannot be written to.
    """
    read = read_bundle(bundle)
    manifest = read.manifest
    if manifest["engine"] != "onnx":
        raise UserError(f"Triton takes bundles of the kind onnx; {bundle} is {manifest['engine']}")
    model = folder / MODEL
    try:
        with replacing(model / "1" / "model.onnx") as temporary:
            temporary.write_bytes(read.data)
        write_text(model / "config.pbtxt", config(manifest))
    except OSError as error:
        raise UserError(f"{model} cannot be written to: {error.strerror}") from None
    return model


def config(manifest: dict[str, Any]) -> str:
    """The model's configuration. Sizes have no batch: Triton adds it where batches are allowed."""
    rgb = ("TYPE_UINT8", [-1, -1, channels_of(manifest.get("takes_points", False))])
    inputs = ",\n".join([tensor("rgb", *rgb), tensor("zoe", *DEPTH)])
    outputs = ",\n".join(tensor(name, *DEPTH) for name in manifest["outputs"])
    return f"""\
# Depth refiner, bundle {manifest["digest"]}.
# rgb is 8-bit RGB. zoe and depth are metres * 256, and 0 is an invalid pixel.
name: "{MODEL}"
backend: "onnxruntime"
max_batch_size: {MOST_FRAMES}
input [
{inputs}
]
output [
{outputs}
]
# Requests with pictures of one size are refined together.
dynamic_batching {{
  max_queue_delay_microseconds: {MOST_WAIT_US}
}}
"""


def tensor(name: str, dtype: str, sizes: list[int]) -> str:
    """An input or output, -1 for any size."""
    return f'  {{ name: "{name}" data_type: {dtype} dims: {sizes} }}'
