"""Metric depth networks in ONNX files.

An ONNX file does not say what its numbers mean, so a description lies beside it: `depth.json` or
`depth.yaml` for `depth.onnx`.

    name: fastdepth-nyu        # of the network
    height: 224                # of its input, pixels
    width: 224
    mean: [0.485, 0.456, 0.406]  # the input is (RGB in 0..1 - mean) / std
    std: [0.229, 0.224, 0.225]
    unit: m                    # of its first output: m, mm, 1/m, or relative
    focal: 300                 # optional: metres = output in this unit * focal length / 300

The focal length is in pixels of the network's input; the camera's intrinsics tell it. Networks
that predict depth as one certain camera would see it need this term, such as DA3METRIC.

The input is float32 [B, 3, height, width] or [B, height, width, 3].
"""

import hashlib
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from zoerefine.base.errors import UserError, needed
from zoerefine.base.files.atomic import read_regular_file
from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.messages import one_line
from zoerefine.base.yaml.read import YamlError, load_yaml
from zoerefine.depth.data.cache.decode import resize_rgb
from zoerefine.depth.data.intrinsics import FocalTerm
from zoerefine.depth.data.layouts.recordings import read_text
from zoerefine.depth.data.networks import pseudo_source as source

SUFFIXES = ".json", ".yaml"
FOCAL = "focal"  # the key that may be left out
UNITS = ("m", "mm", "1/m", "relative")
LEAST_INVERSE = 1 / 255  # of 1/m: farther depth does not fit into a file
LARGEST_FILE = 2**31  # bytes, as Protocol Buffers have it
MOST_PIXELS = 8192  # of a side
MOST = 1e6  # of a standard deviation or focal length; NaN is not below it either


@dataclass(frozen=True)
class OnnxDescription:
    """The description beside an ONNX file; see the head of this module."""

    name: str
    height: int
    width: int
    mean: list[float]
    std: list[float]
    unit: str
    focal: float | None = None

    def fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if not isinstance(self.name, str) or not self.name.isprintable() or not self.name:
            return "name must be a text"
        for side in ("height", "width"):
            value = getattr(self, side)
            if type(value) is not int or not 0 < value <= MOST_PIXELS:
                return f"{side} must be pixels, 1 to {MOST_PIXELS}"
        if not is_triple(self.mean) or not all(0 <= one <= 1 for one in self.mean):
            return "mean must be three numbers from 0 to 1, as colours are"
        if not is_triple(self.std) or not all(0 < one < MOST for one in self.std):
            return "std must be three numbers above 0"
        if self.unit not in UNITS:
            return f"unit must be one of {', '.join(UNITS)}"
        if self.focal is not None and not (
            type(self.focal) in (int, float) and 0 < self.focal < MOST
        ):
            return "focal must be a number of pixels above 0"
        return ""


def is_triple(value: Any) -> bool:
    """Whether a value is three numbers."""
    return isinstance(value, list) and [type(one) in (int, float) for one in value] == [True] * 3


def load_onnx(name: str) -> source.DepthNetwork:
    """A network from an ONNX file; ONNX Runtime runs it on the CPU.

    Raises:
        UserError: ONNX Runtime is not installed, a file is missing or damaged, or the depth is
            relative.
    """
    with needed("ONNX files need ONNX Runtime", "onnx"):
        import onnxruntime
    path = Path(name)
    described = description_file(path)
    description, text = read_description(described)
    if description.unit == "relative":
        raise source.relative_depth(name, description.name)
    try:
        # From bytes: the digest covers everything that is loaded, since bytes have no other files.
        data = read_regular_file(path, LARGEST_FILE)
        session = onnxruntime.InferenceSession(
            data, session_options(onnxruntime), providers=["CPUExecutionProvider"]
        )
    except OSError as error:
        raise source.no_network(name, str(error.strerror)) from None
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise source.no_network(name, str(error).strip().splitlines()[0]) from None
    digest = hashlib.sha256(data + text.encode()).hexdigest()
    channels_first = is_channels_first(name, session.get_inputs(), description)
    run = partial(predict, session, description, channels_first)
    focal = None
    if description.focal is not None:
        focal = FocalTerm(float(description.focal), description.height, description.width)
    return source.DepthNetwork(source.PseudoSource(description.name, digest), run, focal)


def session_options(onnxruntime: Any) -> Any:
    """All cores that this process may use, without threads that spin; only errors are logged."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options


def description_file(path: Path) -> Path:
    """The description beside an ONNX file. Raises `UserError` without one."""
    for suffix in SUFFIXES:
        if path.with_suffix(suffix).is_file():
            return path.with_suffix(suffix)
    keys = ", ".join(field.name for field in fields(OnnxDescription) if field.name != FOCAL)
    raise UserError(
        f"{path} has no description beside it: write {path.with_suffix(SUFFIXES[0])} with {keys} "
        "(zoerefine data pseudo --help)"
    )


def read_description(path: Path) -> tuple[OnnxDescription, str]:
    """A description and its text.

    Raises `UserError` for one with missing, unknown or wrong values.
    """
    text = read_text(path)
    try:
        found: Any = load_yaml(text)
    except YamlError as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    needed = {field.name for field in fields(OnnxDescription)} - {FOCAL}
    if not isinstance(found, dict) or set(found) - {FOCAL} != needed:
        raise UserError(
            f"{path} must have exactly these keys: {', '.join(sorted(needed))}; and, if metres "
            f"depend on the focal length, {FOCAL}"
        )
    description = OnnxDescription(**found)
    if fault := description.fault():
        raise UserError(f"{path}: {fault}")
    return description, text


def is_channels_first(name: str, inputs: list[Any], description: OnnxDescription) -> bool:
    """Whether the input is [B, 3, H, W]. Raises `UserError` where it does not fit."""
    height, width = description.height, description.width
    shape = inputs[0].shape if len(inputs) == 1 else []
    if inputs[0].type == "tensor(float)":
        for layout in ((3, height, width), (height, width, 3)):
            pairs = zip(shape[1:], layout, strict=False)
            if len(shape) == 4 and all(type(a) is not int or a == b for a, b in pairs):
                return layout[0] == 3
    raise UserError(
        f"{name} takes {', '.join(f'{one.type} {one.shape}' for one in inputs)}; its description "
        f"says one float32 of 3 channels, height {height} and width {width}"
    )


def predict(
    session: Any, description: OnnxDescription, channels_first: bool, pictures: np.ndarray
) -> np.ndarray:
    """Depth, float32 [B, H, W], metres, of pictures of one size, uint8 [B, H, W, 3] RGB."""
    height, width = pictures.shape[1:3]
    place = session.get_inputs()[0].name
    mean, std = (np.array(one, np.float32) for one in (description.mean, description.std))
    depths = []
    for picture in pictures:
        small = resize_rgb(picture, description.height, description.width).astype(np.float32) / 255
        inputs = (small - mean) / std
        if channels_first:
            inputs = inputs.transpose(2, 0, 1)
        try:
            values = session.run(None, {place: np.ascontiguousarray(inputs[None])})[0]
        except Exception as error:  # as in `load_onnx`
            reason = one_line(str(error))
            raise UserError(f"{description.name} cannot be run: {reason}") from None
        depth_m = in_metres(np.squeeze(values), description)
        depths.append(cv2.resize(depth_m, (width, height), interpolation=cv2.INTER_LINEAR))
    return np.stack(depths)


def in_metres(values: np.ndarray, description: OnnxDescription) -> np.ndarray:
    """An output as float32 metres [h, w]. Raises `UserError` for one that is no picture."""
    if values.ndim != 2:
        raise UserError(
            f"the output of {description.name} has the shape {list(values.shape)}: one depth for "
            "each pixel is expected"
        )
    values = values.astype(np.float32)
    if description.unit == "1/m":
        return 1 / values.clip(min=LEAST_INVERSE)
    return values / 1000 if description.unit == "mm" else values
