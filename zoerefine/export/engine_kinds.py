"""The kinds of engine, and what each must give: one interface, a module of this folder a kind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol, cast

import torch
from torch import Tensor

from zoerefine.errors import UserError
from zoerefine.export import KINDS
from zoerefine.export.precision import Inputs
from zoerefine.model import RefinerNetwork

NOT_INSTALLED = "not installed"

# uint8 [B, H, W, 3] and uint16 [B, H, W] to uint16 [B, H, W], on the engine's device.
Run = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ExportSource:
    """What an engine is built from: a float32 refiner on the CPU, and the size it was trained at.

    `calibration` gives batches of training frames at that size.
    """

    refiner: RefinerNetwork
    height: int
    width: int
    calibration: Callable[[], Iterator[Inputs]]

    def example(self, batch: int) -> Inputs:
        """A batch of plausible inputs, on the CPU."""
        size = self.height, self.width
        return torch.rand(batch, 3, *size), torch.rand(batch, 1, *size) + 1

    @property
    def parameters(self) -> int:
        """How many numbers the refiner has learned."""
        return sum(tensor.numel() for tensor in self.refiner.parameters())


@dataclass(frozen=True)
class Built:
    """An engine, ready to be put into a bundle.

    Attributes:
        module: the bundle's TorchScript: the whole engine, or its ends alone.
        device: cpu or cuda, where it runs.
        files: what else travels in the bundle, by name.
        needs: facts of `here()` without which it does not run, and their allowed values.
        batches: the smallest, best and largest batch; empty where any will do.
        stand_in: the same arithmetic in torch, to compare with eager where the engine cannot run.
    """

    module: torch.jit.ScriptModule
    device: str = "cpu"
    files: dict[str, bytes] = field(default_factory=dict)
    needs: dict[str, list[str]] = field(default_factory=dict)
    batches: tuple[int, ...] = ()
    stand_in: torch.nn.Module | None = None


class Kind(Protocol):
    """What the module of a kind gives; see `torchscript.py` for the simplest."""

    NAME: str
    INSTALL: str

    def precisions(self) -> tuple[str, ...]: ...

    def lacking(self) -> str: ...

    def usable(self) -> bool: ...

    def here(self) -> dict[str, str]: ...

    def build(self, source: ExportSource, precision: str) -> Built: ...

    def attach(
        self, module: torch.jit.ScriptModule, read: Callable[[str], bytes], precision: str
    ) -> Run: ...


def kind_of(name: str) -> Kind:
    """The module of a kind. Raises `UserError` where there is no such kind."""
    if name not in KINDS:
        raise UserError(f"no engine {name!r}; known: auto, {', '.join(KINDS)}")
    return cast(Kind, import_module(f"zoerefine.export.engines.{name.replace('-', '_')}_engine"))


def misfits(needs: dict[str, list[str]], here: dict[str, str]) -> list[str]:
    """The names of what a bundle needs and this machine has not, or has otherwise."""
    return [name for name, allowed in needs.items() if here.get(name) not in allowed]


def check_fits(
    name: str, needs: dict[str, list[str]], here: dict[str, str], path: object, again: str
) -> None:
    """Raises `UserError`, in one line, where a bundle was built for something else.

    Args:
        name: the kind of the engine.
        path: the bundle, for the message.
        again: the command that builds the right one.
    """
    wrong = misfits(needs, here)
    if not wrong:
        return
    built_for = ", ".join(f"{fact} {' or '.join(needs[fact])}" for fact in wrong)
    is_here = ", ".join(f"{fact} {here.get(fact, NOT_INSTALLED)}" for fact in wrong)
    install = kind_of(name).INSTALL if NOT_INSTALLED in is_here else ""
    advice = f"{install}, or build the right one" if install else "build the right one"
    raise UserError(f"{path} was built for {built_for}; here is {is_here}: {advice} with `{again}`")


def auto() -> str:
    """The best kind that can be built and run here."""
    return next(name for name in KINDS if kind_of(name).usable())


def architecture() -> str:
    """The GPU's, or none."""
    if not torch.cuda.is_available():
        return "none"
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"
