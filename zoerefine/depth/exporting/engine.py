"""A loaded bundle: the one face of engines of every kind.

Tensors need torch. NumPy arrays need it only if the engine's kind does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.depth.exporting import NO_CONFIDENCE
from zoerefine.depth.points import HINTS, NO_HINTS, RGB, channels_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from zoerefine.depth.exporting.engine_kinds import ArrayForward, Forward


@dataclass(frozen=True)
class Engine:
    """A loaded bundle.

    Call it with NumPy arrays: RGB uint8 [B, H, W, 3] and pseudo depth uint16 [B, H, W] in
    metres * 256. It returns refined depth uint16 [B, H, W] in the same units. Any B, H and W.

    If it takes metric points, a picture may have what they say as channels after RGB, and pseudo
    depth is then corrected by them: see `Refiner.with_points`.

    Attributes:
        forward: tensors on `device` to all outputs, for batches up to `max(manifest["batches"])`.
        on_arrays: the same for NumPy arrays.
        device: cpu, or a GPU with its index.
        parallel_calls: the number of calls at a time that uses the machine best.
    """

    forward: "Forward"
    on_arrays: "ArrayForward"
    manifest: dict[str, Any]
    digest: str
    device: "str | torch.device"
    parallel_calls: int

    @property
    def has_confidence(self) -> bool:
        """Whether the spread of depth is among the outputs."""
        return "spread" in self.manifest["outputs"]

    @property
    def takes_points(self) -> bool:
        """Whether pictures may have what metric points say as channels after RGB."""
        return bool(self.manifest.get("takes_points"))

    def __call__(self, rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> np.ndarray:
        return self.arrays(rgb_u8, zoe_u16)[0]

    def require_confidence(self) -> None:
        """Raises `UserError` if the refiner has no confidence."""
        if not self.has_confidence:
            raise UserError(f"this bundle has no confidence: {NO_CONFIDENCE}")

    def arrays(self, rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> list[np.ndarray]:
        """Refined depth and, with confidence, spread in log depth * 10000: uint16 [B, H, W] each.

        Raises `UserError` for other types or shapes.
        """
        if self.takes_points and rgb_u8.shape[-1] == RGB:
            hints = np.broadcast_to(np.array(NO_HINTS, np.uint8), (*rgb_u8.shape[:-1], HINTS))
            rgb_u8 = np.concatenate([rgb_u8, hints], -1)
        parts = [self.on_arrays(*part) for part in self.parts(rgb_u8, zoe_u16)]
        return joined(parts, np.concatenate)

    def outputs(self, rgb_u8: "Tensor", zoe_u16: "Tensor") -> "list[Tensor]":
        """All outputs on `device`, for tensors on any device. A GPU's work is only queued.

        Raises `UserError` for other types or shapes.
        """
        import torch

        if self.takes_points and rgb_u8.shape[-1] == RGB:
            # Filled on the device: a copy from the CPU's memory would wait for a GPU.
            hints = [torch.full_like(rgb_u8[..., :1], byte) for byte in NO_HINTS]
            rgb_u8 = torch.cat([rgb_u8, *hints], -1)
        with torch.inference_mode():
            parts = [
                self.forward(rgb.to(self.device), zoe.to(self.device))
                for rgb, zoe in self.parts(rgb_u8, zoe_u16)
            ]
        return joined(parts, torch.cat)

    def parts(self, rgb_u8: Any, zoe_u16: Any) -> Iterator[tuple[Any, Any]]:
        """The inputs, arrays or tensors, as batches that the engine takes.

        Raises `UserError` for wrong inputs.
        """
        check_inputs(rgb_u8, zoe_u16, channels_of(self.takes_points))
        largest = max(self.manifest.get("batches") or [len(rgb_u8)])
        for start in range(0, len(rgb_u8), largest):
            rows = slice(start, start + largest)
            yield rgb_u8[rows], zoe_u16[rows]


def joined(parts: list[list[Any]], concatenate: Callable[[Any], Any]) -> list[Any]:
    """The outputs of several batches as those of one."""
    if len(parts) == 1:
        return parts[0]
    return [concatenate(output) for output in zip(*parts, strict=True)]


def check_inputs(rgb_u8: Any, zoe_u16: Any, channels: int) -> None:
    """Raises `UserError` for types or shapes that engines do not take."""
    valid = (
        dtype_name(rgb_u8) == "uint8"
        and dtype_name(zoe_u16) == "uint16"
        and len(rgb_u8.shape) == 4
        and tuple(rgb_u8.shape) == (*zoe_u16.shape, channels)
        and 0 not in rgb_u8.shape
    )
    if not valid:
        raise UserError(
            "an engine takes RGB as uint8 [B, H, W, 3] and depth as uint16 [B, H, W] of the same "
            f"size (metres * 256), not {_described(rgb_u8)} and {_described(zoe_u16)}"
        )


def dtype_name(values: Any) -> str:
    """For example uint8, for arrays as for tensors."""
    return str(values.dtype).removeprefix("torch.")


def arrays_by_tensors(forward: "Forward", device: "str | torch.device") -> "ArrayForward":
    """A function of NumPy arrays that calls one of tensors on a device."""
    import torch

    if on_gpu(device):
        from zoerefine.depth.exporting.pinned import PinnedCalls

        calls = PinnedCalls(torch.device(device))
        return lambda rgb_u8, zoe_u16: calls(forward, rgb_u8, zoe_u16)

    def on_arrays(rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> list[np.ndarray]:
        # torch warns of arrays that are only readable, as those of messages are: they are copied.
        inputs = [torch.from_numpy(np.require(one, None, "W")) for one in (rgb_u8, zoe_u16)]
        with torch.inference_mode():
            return [one.numpy() for one in forward(*inputs)]

    return on_arrays


def on_gpu(device: "str | torch.device") -> bool:
    """Whether a device, or its name, is a GPU."""
    return str(device).startswith("cuda")


def tensors_by_arrays(on_arrays: "ArrayForward") -> "Forward":
    """A function of tensors on the CPU that calls one of NumPy arrays. Nothing is copied."""

    def forward(rgb_u8: "Tensor", zoe_u16: "Tensor") -> "list[Tensor]":
        import torch

        return [torch.from_numpy(output) for output in on_arrays(rgb_u8.numpy(), zoe_u16.numpy())]

    return forward


def _described(values: Any) -> str:
    return f"{dtype_name(values)} {list(values.shape)}"
