"""Engine kinds: what the module of a kind defines, and how a kind is found by its name.

Last stand the files of a user's cache, in which the builders of kinds keep what only saves time.

To add a kind, write one module that defines everything in `EngineKind`
(`engines/torchscript_engine.py` is the simplest example), and add one row with its name to
`zoerefine.base.registries.ENGINES`.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing
from zoerefine.base.registries import ENGINES
from zoerefine.depth.exporting.bundle.containers import Container

if TYPE_CHECKING:  # kinds that run without torch import this module
    from torch import Tensor, nn

    from zoerefine.depth.exporting.source import ExportSource

INSTALLED, NOT_INSTALLED = "installed", "not installed"
BROKEN = "installed but broken"

# RGB uint8 [B, H, W, 3] and pseudo depth uint16 [B, H, W] to the outputs, uint16 [B, H, W] each:
# refined depth and, if the refiner has confidence, spread in log depth * 10000. All are on the
# engine's device; depth is in metres * 256.
Forward = Callable[["Tensor", "Tensor"], "list[Tensor]"]
# The same for NumPy arrays.
ArrayForward = Callable[[np.ndarray, np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Bundle:
    """A verified bundle, read into memory once: what was verified is what is loaded.

    Attributes:
        path: where it was read, for messages. Another file may be there by now.
        data: all bytes of its file.
        container: the file's format.
        manifest: with the `digest` of `data`.
    """

    path: Path
    data: bytes
    container: Container
    manifest: dict[str, Any]

    def find_file(self, name: str) -> bytes | None:
        """One of `BuiltEngine.files` by its name, or None if there is no such file."""
        return self.container.read_file(self.data, name)

    def file(self, name: str) -> bytes:
        """One of `BuiltEngine.files` by its name. Raises `UserError` if there is no such file."""
        data = self.find_file(name)
        if data is None:
            raise UserError(f"{self.path} is a damaged engine bundle: it has no {name}")
        return data


@dataclass(frozen=True)
class BuiltEngine:
    """An engine that is ready to be saved as a bundle.

    Attributes:
        content: the engine in the format of the kind's container.
        device: where it runs, cpu or cuda.
        files: further files of the bundle, by name.
        requirements: for each fact of `machine_facts()` that matters, the allowed values.
        batches: sizes that it is compared at, from the smallest to the largest that it takes; empty
            if any size will do.
        has_confidence: whether it has the second output, spread.
        torch_equivalent: the same arithmetic in PyTorch. It is compared with the eager refiner
            where the engine itself cannot run. None if the engine runs wherever it is built.
    """

    content: bytes
    device: str = "cpu"
    files: dict[str, bytes] = field(default_factory=dict)
    requirements: dict[str, list[str]] = field(default_factory=dict)
    batches: tuple[int, ...] = ()
    has_confidence: bool = False
    torch_equivalent: "nn.Module | None" = None


class EngineKind(Protocol):
    """What the module of an engine kind defines.

    Attributes:
        NAME: its row in `ENGINES`; `--engine` takes it, and manifests hold it.
        INSTALL: the command that installs what bundles of this kind need beyond torch, or "".
        PARALLEL_CALLS: True if a CPU is used best by several calls at once with one thread each;
            False if one call uses all cores well.
        CONTAINER: the file format of its bundles.
        GRAPHS: on a GPU, how many shapes of inputs may have a CUDA graph of the call; 0 if calls
            cannot be captured.
        TAKES_ARRAYS: True if `load` gives a function of NumPy arrays, and the engine runs without
            torch; False if it gives a function of tensors on the bundle's device.
    """

    NAME: str
    INSTALL: str
    PARALLEL_CALLS: bool
    CONTAINER: Container
    GRAPHS: int
    TAKES_ARRAYS: bool

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

    def build(self, source: "ExportSource", precision: str) -> BuiltEngine:
        """Build an engine in one of `precisions()`. Raises `UserError` if that fails."""

    def load(self, bundle: Bundle) -> "Forward | ArrayForward":
        """The forward function of a verified bundle whose requirements this machine meets.

        It is made of the bundle's bytes. `bundle.path` is not read: another file may be there.
        """


def engine_kind(name: str, where: object = "--engine") -> EngineKind:
    """The module of a kind. Raises `UserError` that names `where` for an unknown name."""
    ENGINES.check(name, str(where))
    return cast(EngineKind, ENGINES.load(name))


def requirement_words(manifest: dict[str, Any]) -> str:
    """A bundle's requirements, for people."""
    named = manifest["requirements"].items()
    return "; ".join(f"{name} {' or '.join(allowed)}" for name, allowed in named) or "only torch"


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
    required = ", ".join(
        name if requirements[name] == [INSTALLED] else f"{name} {' or '.join(requirements[name])}"
        for name in unmet
    )
    has = {name: facts.get(name, NOT_INSTALLED) for name in unmet}
    found = ", ".join(f"no {n}" if x == NOT_INSTALLED else f"{n} {x}" for n, x in has.items())
    unusable = NOT_INSTALLED in has.values() or BROKEN in found
    install = f"{kind.INSTALL}, or " if kind.INSTALL and unusable else ""
    raise UserError(
        f"{path} was built for {required}; this machine has {found}: {install}build the right "
        f"bundle with `{rebuild}`"
    )


def last_line(error: BaseException) -> str:
    """What a library's error says last, without the frames of C++ that torch may add."""
    said = str(error).split("\nException raised from")[0].strip()
    return said.splitlines()[-1] if said else type(error).__name__


def gpu_architecture() -> str:
    """The GPU's compute capability, such as sm_90, or none."""
    import torch

    if not torch.cuda.is_available():
        return "none"
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def cache_file(*name: str) -> Path:
    """A file that only saves time, in the user's cache folder: never an error when missing.

    Its name has what must be equal to use it again.
    """
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "zoerefine" / "-".join(name)


def read_cache(path: Path) -> bytes | None:
    """The content of a cache file; None if there is none, or it cannot be read."""
    with suppress(OSError):
        return path.read_bytes()
    return None


def write_cache(path: Path, data: bytes) -> None:
    """Replace a cache file; nothing happens where it cannot be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(data)


@contextmanager
def private_copy(path: Path) -> Iterator[Path]:
    """A copy of a cache file for a program that rewrites it; afterwards it replaces the file.

    The copy's folder exists; the copy does not if there is no file yet.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with suppress(OSError):
            shutil.copyfile(path, copy)
        yield copy
        if data := read_cache(copy):
            write_cache(path, data)
