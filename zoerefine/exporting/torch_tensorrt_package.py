"""Whether Torch-TensorRT can be used in this process, and which versions it has."""

import io
from contextlib import redirect_stdout
from functools import cache
from importlib.util import find_spec

import torch

from zoerefine.exporting.engine_kinds import BROKEN, NOT_INSTALLED


@cache
def import_problem() -> str:
    """Why Torch-TensorRT cannot be imported; "" if it can. The answer is kept.

    A second attempt after a failure would find a half-imported package.
    """
    if not find_spec("torch_tensorrt"):
        return NOT_INSTALLED
    printed = io.StringIO()  # a failing import prints to standard output
    try:
        with redirect_stdout(printed):
            import torch_tensorrt  # noqa: F401
    except Exception as error:  # missing TensorRT libraries raise errors of many types
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"{BROKEN} ({lines[0]})"
    return ""


def runtime_abi() -> str:
    """The version of serialized engines that Torch-TensorRT's runtime reads.

    Imports the runtime if this process has not yet: without it torch's error for such a file is
    "Unknown type name".
    """
    try:
        torch.classes.tensorrt.Engine  # noqa: B018 (it raises where no runtime is loaded)
    except RuntimeError:
        if problem := import_problem():
            return problem
    return str(torch.ops.tensorrt.ABI_VERSION())


def tensorrt_version() -> str:
    """The version of the TensorRT that is imported. To be called after `runtime_abi`.

    Package metadata do not tell: the names of TensorRT's packages differ between releases, and
    Torch-TensorRT may put another library in its place.
    """
    try:
        import tensorrt
    except Exception:  # as above
        return NOT_INSTALLED
    name = getattr(tensorrt, "_package_name", "") or "tensorrt"
    version = str(tensorrt.__version__)
    return version if name == "tensorrt" else f"{name} {version}"
