"""Engine kinds: what the module of a kind defines, and how a kind is found by its name.

To add a kind, write one module that defines everything in `EngineKind`
(`engines/torchscript_engine.py` is the simplest example), and add one row with its name to
`zoerefine.registries.ENGINES`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from zoerefine.errors import UserError
from zoerefine.exporting.precision import Int8Conv, RefinerInputs, to_precision
from zoerefine.exporting.shipped_module import ShippedModule, core_of
from zoerefine.model import RefinerNetwork
from zoerefine.registries import ENGINES

NOT_INSTALLED = "not installed"
BROKEN = "installed but broken"

# RGB uint8 [B, H, W, 3] and pseudo depth uint16 [B, H, W] to the outputs, uint16 [B, H, W] each:
# refined depth and, if the refiner has confidence, spread in log depth * 10000. All are on the
# engine's device; depth is in metres * 256.
Forward = Callable[[Tensor, Tensor], list[Tensor]]


@dataclass(frozen=True)
class ExportSource:
    """What an engine is built from.

    Attributes:
        refiner: float32, on the CPU, in evaluation mode.
        height, width: the size that the refiner was trained at.
        calibration: yields batches of training frames at that size.
    """

    refiner: RefinerNetwork
    height: int
    width: int
    calibration: Callable[[], Iterator[RefinerInputs]]

    def example(self, batch: int) -> RefinerInputs:
        """A random batch of plausible inputs on the CPU: [B, 3, h, w] and [B, 1, h, w]."""
        size = self.height, self.width
        return torch.rand(batch, 3, *size), torch.rand(batch, 1, *size) + 1

    def core(self, precision: str, int8_conv: type[Int8Conv] = Int8Conv) -> nn.Module:
        """What engines are built from: the refiner in `precision`, for this size only.

        It is a core of `ShippedModule`. Its graph names no device, so a bundle can be loaded on
        another one. `int8_conv` as in `to_precision`.
        """
        refiner = to_precision(self.refiner, precision, self.calibration, int8_conv)
        refiner.fix_size(self.height, self.width)
        return core_of(refiner)

    def shipped(self, core: nn.Module) -> ShippedModule:
        """A core with its pre- and post-processing."""
        return ShippedModule(core, self.height, self.width, self.has_confidence)

    @property
    def has_confidence(self) -> bool:
        """Whether engines have the second output."""
        return self.refiner.has_confidence

    @property
    def parameters(self) -> int:
        """The number of the refiner's parameters."""
        return sum(tensor.numel() for tensor in self.refiner.parameters())


@dataclass(frozen=True)
class BuiltEngine:
    """An engine that is ready to be saved as a bundle.

    Attributes:
        module: the bundle's TorchScript: the whole engine, or only its pre- and post-processing.
        device: where it runs, cpu or cuda.
        files: further files of the bundle, by name.
        requirements: for each fact of `machine_facts()` that matters, the allowed values.
        batches: smallest, best and largest batch size; empty if any size will do.
        has_confidence: whether it has the second output, spread.
        torch_equivalent: the same arithmetic in PyTorch. It is compared with the eager refiner
            where the engine itself cannot run. None if the engine runs wherever it is built.
    """

    module: torch.jit.ScriptModule
    device: str = "cpu"
    files: dict[str, bytes] = field(default_factory=dict)
    requirements: dict[str, list[str]] = field(default_factory=dict)
    batches: tuple[int, ...] = ()
    has_confidence: bool = False
    torch_equivalent: nn.Module | None = None


class EngineKind(Protocol):
    """What the module of an engine kind defines.

    Attributes:
        NAME: its row in `ENGINES`; `--engine` takes it, and manifests hold it.
        INSTALL: the command that installs what bundles of this kind need beyond torch, or "".
        PARALLEL_CALLS: True if a CPU is used best by several calls at once with one thread each;
            False if one call uses all cores well.
    """

    NAME: str
    INSTALL: str
    PARALLEL_CALLS: bool

    def precisions(self) -> tuple[str, ...]:
        """The precisions that can be built on this machine, the one expected fastest first.

        `--precision auto` on a CPU measures them all but int8; on a GPU it takes the first one
        that is within tolerance.
        """

    def missing_requirement(self) -> str:
        """Why this machine cannot build the engine; "" if it can."""

    def allowed_for_auto(self) -> bool:
        """Whether `--engine auto` may choose it: this machine can build it and run it."""

    def machine_facts(self) -> dict[str, str]:
        """This machine's value of every fact that a bundle may require."""

    def build(self, source: ExportSource, precision: str) -> BuiltEngine:
        """Build an engine in one of `precisions()`. Raises `UserError` if that fails."""

    def load(
        self, module: torch.jit.ScriptModule, read_file: Callable[[str], bytes], precision: str
    ) -> Forward:
        """The forward function of a loaded bundle.

        Args:
            module: `BuiltEngine.module`, loaded on the bundle's device.
            read_file: returns one of `BuiltEngine.files` by its name.
            precision: as it was built.
        """


def engine_kind(name: str, where: object = "--engine") -> EngineKind:
    """The module of a kind. Raises `UserError` that names `where` for an unknown name."""
    ENGINES.check(name, str(where))
    return cast(EngineKind, ENGINES.load(name))


def unmet_requirements(requirements: dict[str, list[str]], facts: dict[str, str]) -> list[str]:
    """Names of the requirements that are missing or different on this machine."""
    return [name for name, allowed in requirements.items() if facts.get(name) not in allowed]


def check_requirements(
    kind: EngineKind, requirements: dict[str, list[str]], path: object, rebuild: str
) -> None:
    """Raises `UserError`, in one line, if this machine does not meet a bundle's requirements.

    Args:
        path: the bundle, for the message.
        rebuild: the command that builds the right bundle.
    """
    facts = kind.machine_facts()
    unmet = unmet_requirements(requirements, facts)
    if not unmet:
        return
    required = ", ".join(f"{name} {' or '.join(requirements[name])}" for name in unmet)
    found = ", ".join(f"{name} {facts.get(name, NOT_INSTALLED)}" for name in unmet)
    unusable = NOT_INSTALLED in found or BROKEN in found
    install = f"{kind.INSTALL}, or " if kind.INSTALL and unusable else ""
    raise UserError(
        f"{path} was built for {required}; this machine has {found}: {install}build the right "
        f"bundle with `{rebuild}`"
    )


def gpu_architecture() -> str:
    """The GPU's compute capability, such as sm_90, or none."""
    if not torch.cuda.is_available():
        return "none"
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"
