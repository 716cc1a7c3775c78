"""A bundle as a Python function: pictures and pseudo depth in, refined depth out.

from zoerefine.depth.infer import Refiner
refiner = Refiner.load("runs/demo/latest/best")  # a run, or a bundle such as refiner.ts
refined_m = refiner(rgb, zoe_m)
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M, ZOEDEPTH
from zoerefine.depth.data.depth_unit import (
    FARTHEST_ZOE_M,
    DepthOfCalls,
    PointsOfCalls,
    is_beyond_range,
    trained_far_m,
)
from zoerefine.depth.exporting import SPREAD_UNITS
from zoerefine.depth.exporting.engine import on_gpu

if TYPE_CHECKING:  # importing this file does not import torch
    from torch import Tensor

    from zoerefine.depth.exporting.bundle.bundle import Engine
    from zoerefine.depth.exporting.pinned import PinnedCalls
    from zoerefine.depth.infer.stream import Memory
    from zoerefine.depth.points import MetricPoints


class Refiner:
    """A loaded bundle.

    Attributes:
        manifest: its origin, accuracy, latency and requirements.
        digest: of the bundle; it identifies the origin of refined depth.
    """

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        self.manifest, self.digest = engine.manifest, engine.digest
        self.points = PointsOfCalls()
        self.depth = DepthOfCalls(trained_far_m(self.manifest))
        self.pinned: PinnedCalls | None = None
        if on_gpu(engine.device):
            import torch

            from zoerefine.depth.exporting import pinned

            self.pinned = pinned.PinnedCalls(torch.device(engine.device))

    def __reduce__(self) -> str:
        """Raises `UserError`: an engine belongs to its process."""
        raise UserError("a Refiner cannot be pickled: load its bundle in each process")

    @classmethod
    def load(
        cls,
        path: str | Path,
        trust: bool = False,
        room: str | Path | None = None,
        cuda_graphs: bool = True,
    ) -> "Refiner":
        """Verify a bundle and load it on the device that it was built for.

        Args:
            path: a bundle, or a run's folder: then the bundle that was exported last is loaded.
            trust: accept a bundle from elsewhere that is a program (.ts, .pt2), and remember it.
                Loading it runs it with your rights.
            room: `room.json` of `zoerefine infer --measured`: it corrects all depth, refined or, if
                what was measured speaks against the refiner, pseudo depth.
            cuda_graphs: on a GPU, from the third call with pictures of one size and number on,
                replay them as one CUDA graph. False: for a program whose other threads wait for the
                whole GPU (`torch.cuda.synchronize()`) during that third call.

        Raises:
            UserError: it is missing or damaged, it is a program that you have not accepted, this
                machine does not meet its requirements, or the room was measured with another
                bundle or depth network.
        """
        from zoerefine.depth.exporting.bundle.bundle import bundle_of, load_bundle

        engine = load_bundle(bundle_of(path), trust, cuda_graphs)
        if room:
            from zoerefine.depth.data.networks.pseudo_source import source_from_json
            from zoerefine.depth.infer.room import Room

            calibration = Room.load(room)
            calibration.check(source_from_json(engine.manifest.get("pseudo")), engine)
            engine = calibration.engine(engine)
        return cls(engine)

    def __call__(self, rgb: Any, zoe: Any, points: "MetricPoints | None" = None) -> Any:
        """Refine the depth of one picture or of a batch.

        Args:
            rgb: uint8 [H, W, 3] or [B, H, W, 3], RGB; a NumPy array, a tensor, or any array with
                DLPack, such as CuPy's.
            zoe: pseudo depth [H, W] or [B, H, W]: uint16 in metres * 256, or floats in metres.
                Pixels that are 0, negative, non-finite or masked (`np.ma`) are invalid.
            points: metric points of one picture, which correct its depth; not for batches.

        Returns:
            The refined depth with the shape and unit of `zoe`: a NumPy array where `zoe` is one,
            else a tensor on the device of `zoe`; floats as float32. Its resolution is 1/256 m;
            invalid pixels are 0. Pictures on a GPU stay there if the bundle runs on it, and the
            call does not wait for the GPU.

        Raises:
            UserError: other shapes or types, or depth or points in another unit than metres; depth
                on a GPU is not asked, since the call would wait for it.
        """
        return self.outputs(rgb, zoe, points, with_confidence=False)[0]

    def outputs(
        self, rgb: Any, zoe: Any, points: "MetricPoints | None", with_confidence: bool
    ) -> list[Any]:
        """Depth, and spread if asked for."""
        if points is not None:
            return self.with_points(rgb, zoe, points, with_confidence)
        refine = self.refine_arrays if isinstance(zoe, np.ndarray) else self.refine_tensors
        return refine(rgb, zoe, with_confidence)

    def with_points(
        self, rgb: Any, zoe: Any, points: "MetricPoints", with_confidence: bool
    ) -> list[Any]:
        """Refined depth of one picture with metric points: before the engine and after it.

        An engine that takes no points is only corrected after it. With confidence, also its spread.
        """
        from zoerefine.base.machine.device import without_autocast
        from zoerefine.depth.points import MetricPoints
        from zoerefine.depth.points.for_engines import corrected, hinted, spread_u16

        if not isinstance(points, MetricPoints):
            raise UserError(
                f"points are a {type(points).__name__}; give zoerefine.depth.points.MetricPoints"
            )
        zoe_array = as_array(zoe)
        pictures, depths = batch(rgb, zoe_array)
        if len(pictures) > 1:
            raise UserError("metric points are of one picture: call once for each of a batch")
        picture, depth = pictures[0], depths[0]
        self.points.check(points, depth)
        with without_autocast():
            if self.engine.takes_points:
                picture, depth = hinted(picture, depth, points)
            refined, *own = (one[0] for one in self.engine.arrays(picture[None], depth[None]))
            found = [like(zoe_array, corrected(refined, points), ZOE_UNIT_M)]
            if with_confidence:
                first = depths[0] if self.engine.takes_points else refined
                spread = spread_u16(first, points, *own)
                found.append(like(zoe_array, spread, 1 / SPREAD_UNITS))
        return found if zoe_array is zoe else [tensor_like(zoe, one) for one in found]

    @property
    def has_confidence(self) -> bool:
        """Whether `with_confidence` works without points; with points it always does."""
        return self.engine.has_confidence

    def with_confidence(
        self, rgb: Any, zoe: Any, points: "MetricPoints | None" = None
    ) -> tuple[Any, Any]:
        """Refined depth as from a call, and its spread.

        The truth lies within depth * exp(+-spread) at 90% of the pixels, in scenes like those of
        the validation; with a room or with points, by what was measured. The spread has the shape
        and type of the depth: log depth where `zoe` is floats, log depth * 10000 where it is
        uint16. Invalid pixels are 0.

        Raises:
            UserError: as a call, and without points if the bundle's refiner has no confidence.
        """
        depth, spread = self.outputs(rgb, zoe, points, with_confidence=True)
        return depth, spread

    def stream(self) -> "RefinerStream":
        """A function of one camera's consecutive frames whose depth is steady over time."""
        return RefinerStream(self)

    def step(
        self, memory: "Memory | None", rgb: Any, zoe: Any, points: "MetricPoints | None" = None
    ) -> "tuple[Any, Memory]":
        """Refined depth that is steady from frame to frame, with the state passed in and out.

        Args:
            memory: what the last step returned; None for the first frame.
            rgb, zoe, points: as in a call. A batch is consecutive frames of one camera.

        Returns:
            The depth as from a call, but steady, and the memory for the next frame. Tensors on a
            GPU are copied to the CPU and back.

        Raises:
            UserError: as a call.
        """
        from zoerefine.depth.infer.stream import Memory

        if not isinstance(memory, Memory | None):
            raise UserError(
                f"memory is a {type(memory).__name__}; give what the last step returned, or None"
            )
        return made_steady(memory, rgb, self(rgb, zoe, points))

    def refine_arrays(self, rgb: Any, zoe: np.ndarray, with_confidence: bool) -> list[np.ndarray]:
        """Depth, and spread if asked for, as arrays. A GPU encodes and decodes floats itself."""
        if with_confidence:
            self.engine.require_confidence()
        if self.pinned and zoe.dtype != np.uint16:
            rgb_u8, depth = as_array(rgb), np.ma.filled(zoe, 0)
            check(rgb_u8, depth)
            call = partial(self.refine_tensors, with_confidence=with_confidence)
            found = self.pinned(call, *pictures(rgb_u8, depth))
            return [output.reshape(zoe.shape) for output in found]
        pictures_u8, zoe_u16 = batch(rgb, zoe)
        self.depth.check(zoe_u16)
        outputs = self.engine.arrays(pictures_u8, zoe_u16)[: 1 + with_confidence]
        units = ZOE_UNIT_M, 1 / SPREAD_UNITS
        return [like(zoe, output, unit) for output, unit in zip(outputs, units, strict=False)]

    def refine_tensors(self, rgb: Any, zoe: Any, with_confidence: bool) -> "list[Tensor]":
        """The same for tensors: depth, and spread if asked for."""
        from zoerefine.depth.infer.tensors import as_tensor, batch_of_tensors, outputs_like

        rgb_u8, depth = as_tensor(rgb), as_tensor(zoe)
        check(rgb_u8, depth)
        inputs = batch_of_tensors(rgb_u8, depth)
        if depth.device.type == "cpu":
            self.depth.check(inputs[1].numpy())
        if with_confidence:
            self.engine.require_confidence()
        outputs = self.engine.outputs(*inputs)
        return outputs_like(depth, outputs if with_confidence else outputs[:1])


class RefinerStream:
    """Called with a camera's frames one after the other, it returns depth that is steady over time.

    Each camera needs its own. A cut in the pictures begins anew by itself.

    Attributes:
        memory: what is remembered of the last frame; None before the first one.
    """

    def __init__(self, refiner: Refiner) -> None:
        self.refiner = refiner
        self.memory: Memory | None = None

    def __call__(self, rgb: Any, zoe: Any, points: "MetricPoints | None" = None) -> Any:
        """`Refiner.step` with the memory of the last call."""
        depth, self.memory = self.refiner.step(self.memory, rgb, zoe, points)
        return depth

    def with_confidence(
        self, rgb: Any, zoe: Any, points: "MetricPoints | None" = None
    ) -> tuple[Any, Any]:
        """Steady depth as from a call, and its spread as from `Refiner.with_confidence`."""
        refined, spread = self.refiner.with_confidence(rgb, zoe, points)
        depth, self.memory = made_steady(self.memory, rgb, refined)
        return depth, spread

    def reset(self) -> None:
        """Forget the last frame: the next one is the first of another recording."""
        self.memory = None


def made_steady(memory: "Memory | None", rgb: Any, refined: Any) -> "tuple[Any, Memory]":
    """Refined depth of the next frames, in its form, and the memory for those after them."""
    from zoerefine.depth.infer.stream import steps

    depth = as_array(refined)
    steady_u16, memory = steps(memory, *batch(as_array(rgb), depth))
    steady = like(depth, steady_u16, ZOE_UNIT_M)
    return steady if refined is depth else tensor_like(refined, steady), memory


def batch(rgb: Any, zoe: Any) -> tuple[np.ndarray, np.ndarray]:
    """What the user gives, as an engine takes it: uint8 [B, H, W, 3] and uint16 [B, H, W].

    Raises `UserError` for shapes and types that engines do not take.
    """
    rgb_u8, depth = as_array(rgb), np.ma.filled(zoe, 0)
    check(rgb_u8, depth)
    zoe_u16 = depth if depth.dtype == np.uint16 else ZOEDEPTH.encode(depth)
    rgb_u8, zoe_u16 = pictures(rgb_u8, zoe_u16)
    return np.ascontiguousarray(rgb_u8), np.ascontiguousarray(zoe_u16)


def pictures(rgb_u8: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One picture or several as a batch: [B, H, W, 3] and [B, H, W]."""
    height, width = depth.shape[-2:]
    return rgb_u8.reshape(-1, height, width, 3), depth.reshape(-1, height, width)


def as_array(values: Any) -> np.ndarray:
    """A NumPy array, or a tensor or another library's array on any device, as a NumPy array."""
    if isinstance(values, np.ndarray):
        return values
    import torch

    from zoerefine.depth.infer.tensors import as_tensor

    tensor = as_tensor(values).cpu()
    if tensor.dtype == torch.bfloat16:  # NumPy has none
        tensor = tensor.float()
    array: np.ndarray = tensor.numpy()
    return array


def tensor_like(tensor: "Tensor", values: np.ndarray) -> "Tensor":
    """An array as a tensor on the device of another one."""
    import torch

    return torch.from_numpy(values).to(tensor.device)


def like(zoe: np.ndarray, output: np.ndarray, unit: float) -> np.ndarray:
    """An output uint16 [B, H, W] in the shape of `zoe`; where that is floats, in `unit`s."""
    output = output.reshape(zoe.shape)
    return output if zoe.dtype == np.uint16 else output.astype(np.float32) * np.float32(unit)


def check(rgb: Any, depth: Any) -> None:
    """Raises `UserError` for shapes and types, of arrays or tensors, that engines do not take, and
    for floats that are no metres."""
    rgb_type, depth_type = (str(one.dtype).removeprefix("torch.") for one in (rgb, depth))
    if rgb_type != "uint8" or rgb.ndim not in (3, 4) or rgb.shape[-1] != 3:
        raise UserError(
            f"rgb is {rgb_type} {list(rgb.shape)}; give uint8 [H, W, 3] or [B, H, W, 3]"
        )
    if 0 in rgb.shape:
        raise UserError(f"rgb has shape {list(rgb.shape)}, which holds no picture")
    if depth.shape != rgb.shape[:-1]:
        raise UserError(
            f"zoe has shape {list(depth.shape)}; for this rgb give {list(rgb.shape[:-1])}"
        )
    if depth_type not in ("uint16", "bfloat16", "float16", "float32", "float64"):
        raise UserError(f"zoe is {depth_type}; give uint16 (metres * 256) or floats (metres)")
    is_here = str(getattr(depth, "device", "cpu")) == "cpu"
    if depth_type != "uint16" and is_here and is_beyond_range(depth):
        raise UserError(
            f"nearly all of zoe lies beyond the {FARTHEST_ZOE_M:g} m that an engine can be given: "
            "give metres, not millimetres"
        )
