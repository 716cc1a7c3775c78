"""What a network must offer to be trained, exported and shipped as a refiner's backbone."""

import ast
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_files
from zoerefine.base.registries import NETWORKS

LIBRARY = "zoerefine"
INSTALLED = ("site-packages", "dist-packages")
CONFIDENCE = "confidence"  # argument of a constructor that MODEL.CONFIDENCE sets
POINTS = "points"  # the same for MODEL.POINTS


class Backbone(Protocol):
    """The contract of a network, a subclass of `torch.nn.Module`.

    The refiner normalises the inputs, pads them to a multiple of `stride`, and bounds the output
    around the pseudo depth (zoerefine/depth/model/refiner.py); the network predicts log depth.

    - `forward` must be traceable by `torch.fx`, with a `DepthHead` as a leaf, and by
      `torch.jit.trace`: no branches on values. Engines are built from the traces.
    - The last layer must compute in float32 under autocast, since bfloat16 has steps of 0.8%. Use
      `zoerefine.depth.model.refiner.DepthHead`, whose first predictions are plausible depths, too.
    - Every parameter must receive a gradient, and samples of a batch must not mix.
    - With confidence, `forward` returns a pair (depth/model/refiner.py). A network offers it by
      an argument `confidence` of its constructor, and predicts it with a `ScaleHead`; a network
      without this argument has none.
    - To take metric points, a network offers an argument `points` of its constructor: its inputs
      then have HINTS channels more, what the points say at a pixel.
    - Random numbers (dropout) come from torch's global generator, which each step seeds.

    Attributes:
        stride: height and width of the inputs are multiples of it.
        confidence: whether `forward` returns a pair; absent means no.
    """

    stride: int

    def __init__(self, base: int, **options: Any) -> None:
        """Random weights.

        Args:
            base: MODEL.BASE, channels of the first level.
            options: MODEL.OPTIONS, keyword arguments of this network alone; and `confidence` and
                `points`, where the constructor has them.
        """

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Predict log depth, less the log of the refiner's typical depth.

        Args:
            inputs: float [B, INPUTS, H, W]: RGB, log pseudo depth and row position, each
                normalised; with points HINTS more channels.

        Returns:
            float32 [B, 1, H, W]. With confidence a pair: the second, of the same shape, is the
            log of the scale of the error of log depth, less `refiner.MEAN_LOG_SCALE`.
        """
        ...


def build_backbone(
    name: str, base: int, options: Mapping[str, Any], confidence: bool, points: bool = False
) -> nn.Module:
    """The network that MODEL.NAME names, with random weights.

    Args:
        name: a name of `registries.NETWORKS`, or `package.module:Class` of any importable module.
        base: channels of the first level.
        options: the network's own keyword arguments.
        confidence: whether to predict confidence, where the network offers it.
        points: whether to take metric points.

    Raises:
        UserError: there is no such network, it is no `Backbone`, an option does not fit, or it
            does not take points.
    """
    network = load_network(name)
    check_options(name, network, options)
    if points and not offers(network, POINTS):
        raise UserError(
            f"MODEL.POINTS: the network {name} takes no metric points: it needs an argument "
            "`points` (docs/extending.md)"
        )
    if offers(network, CONFIDENCE):
        options = {**options, CONFIDENCE: confidence}
    if points:
        options = {**options, POINTS: True}
    return network(base, **options)


def load_network(name: str) -> type[nn.Module]:
    """The class that MODEL.NAME names. Errors as `build_backbone`."""
    NETWORKS.check(name, "MODEL.NAME")
    network = NETWORKS.load(name)
    if not (inspect.isclass(network) and issubclass(network, nn.Module)):
        raise UserError(f"MODEL.NAME {name}: it is no subclass of torch.nn.Module")
    if not isinstance(getattr(network, "stride", None), int):
        raise UserError(
            f"MODEL.NAME {name}: the class needs an integer attribute `stride`, of which the "
            "height and width of its inputs are multiples"
        )
    return network


def outside_files(name: str) -> list[Path]:
    """The files of a network outside this package: its module, and what that imports from the
    folder in which it was found. Empty for a network of this package.

    Of an installed package these are all files of it.
    """
    if not NETWORKS.is_outside(name):
        return []
    NETWORKS.load(name)
    module = name.partition(":")[0]
    file = Path(inspect.getfile(sys.modules[module]))
    path = file.parent if file.name == "__init__.py" else file
    root = path.parents[module.count(".")]
    if root.name in INSTALLED:
        top = root / module.partition(".")[0]
        return sorted(top.rglob("*.py")) or [file]
    return sorted(imported_files(root, file))


def imported_files(root: Path, path: Path) -> set[Path]:
    """A file of Python and those below a folder that it imports, directly or not, by its text.

    `modulefinder` fails where a package has no __init__.py.
    """
    found: set[Path] = set()
    todo = [path]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        with suppress(SyntaxError):
            package = path.parent.relative_to(root).parts
            for node in ast.walk(ast.parse(path.read_bytes())):
                for name in imported_names(node, package):
                    todo += files_of(root, name)
    return found


def imported_names(node: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The full names, in parts, of what a statement in a module of a package imports."""
    if isinstance(node, ast.Import):
        for one in node.names:
            yield tuple(one.name.split("."))
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else ()
        module = (*above, *(node.module.split(".") if node.module else ()))
        for one in node.names:
            yield (*module, one.name)


def files_of(root: Path, name: tuple[str, ...]) -> list[Path]:
    """The files below a folder that importing a name runs: of its packages, and its own."""
    if name[0] == LIBRARY:
        return []
    places = [root.joinpath(*name[: count + 1]) for count in range(len(name))]
    files = [file for one in places for file in (Path(f"{one}.py"), one / "__init__.py")]
    return [file for file in files if file.is_file()]


def outside_digest(name: str) -> str:
    """SHA-256 of the files of a network outside this package; empty for one of this package."""
    files = outside_files(name)
    if not files:
        return ""
    return digest_files(Path(os.path.commonpath([path.parent for path in files])), files)


def check_options(name: str, network: type[nn.Module], options: Mapping[str, Any]) -> None:
    """Raise `UserError` where the constructor does not take `options` or needs others."""
    signature = inspect.signature(network)
    ours = CONFIDENCE, POINTS
    own = [one for one in list(signature.parameters.values())[1:] if one.name not in ours]
    try:
        for name_of_ours in ours:
            if name_of_ours in options and offers(network, name_of_ours):
                raise TypeError(f"MODEL.{name_of_ours.upper()} sets {name_of_ours}")
        signature.bind(0, **options)
    except TypeError as error:
        known = f"its options are {', '.join(map(str, own))}" if own else "it has no options"
        raise UserError(f"MODEL.OPTIONS of {name}: {error}; {known}") from None


def offers(network: type[nn.Module], argument: str) -> bool:
    """Whether a network's constructor has an argument: `confidence` or `points`."""
    return argument in inspect.signature(network).parameters
