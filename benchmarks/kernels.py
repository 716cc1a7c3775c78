"""Kernels of a training step, of validation and of a bundle's call, without a GPU.

A GPU takes longer to start a kernel than to compute most of these, so their number decides the
time. Operations are counted as torch dispatches them on the CPU: on a GPU nearly each is a kernel,
and an optimizer's step over all weights is a few. Memory is what operations read and write. A wait
is a question for a value, for which the CPU would wait.

With `TRAIN.COMPILE` kernels are those that Inductor writes for the CPU, and calls of torch's own;
for a GPU it fuses by other rules. Counts depend on the code alone, so nothing is timed.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from common.refiner import no_calibration, random_refiner
from common.report import Row, left_out, options, report, row
from torch import Tensor
from torch._inductor.utils import run_and_get_code
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from yacs.config import CfgNode

from zoerefine.base.config import defaults, merge
from zoerefine.cli import run_command
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.data.split import Split
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.exporting.precision import to_precision
from zoerefine.depth.exporting.shipped_module import core_of
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.training import optimizer
from zoerefine.depth.training.point_inputs import training_transform
from zoerefine.depth.training.trainer import Trainer

# Operations that start no kernel.
VIEWS = {
    "view", "permute", "unsqueeze", "squeeze", "expand", "slice", "detach", "alias", "t",
    "transpose", "select", "as_strided", "unsafe_view", "split", "unflatten", "reshape", "empty",
    "empty_like", "empty_strided", "new_empty", "new_empty_strided", "unbind", "split_with_sizes",
    "diagonal", "lift_fresh", "record_function_enter_new", "record_function_exit",
}  # fmt: skip
ASKING = {"cpu", "item", "tolist", "__bool__", "__float__", "__int__"}
# In a program of Inductor: its own kernels, and torch's.
CALLS = re.compile(r"(?:cpp_fused_\w+|extern_kernels\.\w+|torch\.ops\.[\w.]+)\(")
HEIGHT, WIDTH, BATCH = 48, 64, 4
MOST_OF_A_STEP, MOST_BESIDE_THE_CORE, OF_A_STEP = 250, 25, 2.0


class Kernels(TorchDispatchMode):
    """Counts operations by name, and the bytes of what they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.bytes = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        name = operation._schema.name.split("::")[1].strip("_")
        if name not in VIEWS:
            self.names[name] += 1
            tensors = [
                one for one in tree_leaves((args, kwargs, result)) if isinstance(one, Tensor)
            ]
            self.bytes += sum(one.numel() * one.element_size() for one in tensors)
        return result


class Waits(TorchFunctionMode):
    """Counts questions for values."""

    count = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += getattr(function, "__name__", "") in ASKING
        return function(*args, **(kwargs or {}))


def main() -> None:
    """Print the table, and write it where asked."""
    parser = options(__doc__)
    parser.add_argument("--network", default="guided", help="MODEL.NAME; default: %(default)s")
    args = parser.parse_args()
    rows = [*bundle_rows()]
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        rows += training_rows(Path(folder), args.network, with_compile=not args.quick)
    report(rows, args, timed=False)


def counted(label: str, work: Callable[[], object], most: float | None = None) -> Iterator[Row]:
    """The rows of some work, after a first run."""
    work()
    with Waits() as waits, Kernels() as kernels:
        work()
    yield row(f"{label}: kernels", kernels.names.total(), "", at_most=most)
    yield row(f"{label}: memory read and written", kernels.bytes / 1e6, "MB")
    yield row(f"{label}: waits", waits.count, "")


def bundle_rows() -> Iterator[Row]:
    """A call of a bundle beside its core, for one picture of the core's size and of another."""
    refiner = random_refiner("small", confidence=True)
    source = ExportSource(refiner, 192, 256, no_calibration)
    core = core_of(to_precision(refiner, "fp32", no_calibration))
    processing = source.shipped(core).processing
    for height, width in ((192, 256), (480, 640)):
        rgb = torch.randint(0, 256, (1, height, width, 3), dtype=torch.uint8)
        zoe = torch.randint(100, 2000, (1, height, width)).to(torch.uint16)
        with torch.inference_mode():
            rgb01, zoe_m = processing.before(rgb, zoe)
            found = list(core(rgb01, zoe_m))

            def beside(rgb: Tensor = rgb, zoe: Tensor = zoe, found: list[Tensor] = found) -> None:
                _, zoe_m = processing.before(rgb, zoe)
                processing.after(zoe, zoe_m, found)

            yield from counted(
                f"bundle's call beside the engine, {height}x{width}", beside, MOST_BESIDE_THE_CORE
            )


def config(network: str, **train: object) -> CfgNode:
    """The default config, with a small batch: it changes no number of kernels."""
    cfg = defaults()
    changes = {
        "MODEL": {"NAME": network, "BASE": 8},
        "LOADER": {"BATCH": BATCH},
        "TRAIN": {"PRECISION": "bf16", **train},
    }
    merge(cfg, changes, "kernels")
    cfg.freeze()
    return cfg


def training_rows(folder: Path, network: str, with_compile: bool) -> Iterator[Row]:
    """A step with the optimizer of a GPU, augmentation, and validation of a batch."""
    synthesize(folder / "world", 2, 1, BATCH, 0, height=HEIGHT, width=WIDTH)
    cache = build_cache(open_dataset(folder / "world"), HEIGHT, WIDTH, folder / "caches")
    with as_on_a_gpu():
        yield from eager_rows(cache, network)
        label = "step with TRAIN.COMPILE, with augmentation: kernels"
        if with_compile:
            yield row(label, compiled_kernels(cache, network), "", at_most=MOST_OF_A_STEP)
        else:
            yield left_out(label, "compiling takes a minute; run it without --quick")


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """The optimizer's step is fused, and gradients are clipped together, as on a GPU."""
    foreach = "torch.utils._foreach_utils._get_foreach_kernels_supported_devices"
    with patch(foreach, lambda: ["cpu"]), patch.object(optimizer, "on_gpu", lambda _: True):
        yield


def eager_rows(cache: Cache, network: str) -> Iterator[Row]:
    """What is counted without TRAIN.COMPILE."""
    trainer, batch, scenes = *trainer_of(config(network), cache), cache.scenes[:1]
    transform = training_transform(trainer.cfg, 0)
    step = [*counted("step", lambda: trainer.train_step(batch))]
    yield from step
    yield from counted("augmentation", lambda: transform(batch))
    validation = [*counted("validation of a batch", lambda: trainer.evaluate(scenes, losses=True))]
    yield from validation
    ratio = validation[0]["value"] / step[0]["value"]
    yield row("validation of a batch: kernels / a step's", ratio, "times", at_most=OF_A_STEP)
    yield from counted("final evaluation of a batch", lambda: trainer.evaluate(scenes, True))


def trainer_of(cfg: CfgNode, cache: Cache) -> tuple[Trainer, DeviceBatch]:
    """A trainer, and one batch for all steps."""
    trainer = Trainer(cfg, cache, Split(cache.scenes, cache.scenes[:1], ()))
    return trainer, next(iter(trainer.prefetch(trainer.loader)))


def compiled_kernels(cache: Cache, network: str) -> int:
    """Kernels of augmentation, of the compiled forward and backward passes, and of the rest."""
    trainer, batch = trainer_of(config(network, COMPILE="default"), cache)
    transform = training_transform(trainer.cfg, 0)
    found, codes = run_and_get_code(lambda: trainer.backward(batch))
    assert len(codes) == 2, "the step is not one graph for each direction"
    gradients = {one: one.grad for one in trainer.refiner.parameters()}

    def known(batch: DeviceBatch) -> object:
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        return found

    trainer.backward = known  # type: ignore[method-assign, assignment]
    trainer.train_step(batch)  # the first one makes the optimizer's state
    with Kernels() as rest:
        transform(batch)
        trainer.train_step(batch)
    return rest.names.total() + sum(len(CALLS.findall(body(code))) for code in codes)


def body(code: str) -> str:
    """The function of Inductor's program that calls the kernels."""
    return code[code.index("def call(") :]


if __name__ == "__main__":
    raise SystemExit(run_command(main))
