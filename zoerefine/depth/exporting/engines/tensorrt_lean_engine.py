"""A `tensorrt` engine that TensorRT's lean runtime runs, too: 44 MB in the place of gigabytes.

It is built version-compatible: of kernels that the lean runtime has, which can be slower. Torch-
TensorRT leaves the lean runtime out of such an engine. NVIDIA's header says of those that they need
the lean runtime of the version that built them; so newer versions are not among the requirements.
"""

from dataclasses import replace

from zoerefine.depth.exporting.engine_kinds import BuiltEngine
from zoerefine.depth.exporting.engines import tensorrt_engine as tensorrt
from zoerefine.depth.exporting.source import ExportSource

NAME = "tensorrt-lean"
# The rest is that of `tensorrt`.
INSTALL, CONTAINER, GRAPHS = tensorrt.INSTALL, tensorrt.CONTAINER, tensorrt.GRAPHS
PARALLEL_CALLS, TAKES_ARRAYS = tensorrt.PARALLEL_CALLS, tensorrt.TAKES_ARRAYS
precisions, missing_requirement = tensorrt.precisions, tensorrt.missing_requirement
machine_facts, load = tensorrt.machine_facts, tensorrt.load


def allowed_for_auto() -> bool:
    """Never: where it can be built, `tensorrt` can be, which is at least as fast."""
    return False


def build(source: ExportSource, precision: str) -> BuiltEngine:
    """As `tensorrt` builds it, for the full and the lean runtime of this machine's version."""
    built = tensorrt.build_kind(source, precision, NAME, version_compatible=True)
    [version] = built.requirements["TensorRT"]
    allowed = {"TensorRT": [version, f"{tensorrt.LEAN} {version}"]}
    return replace(built, requirements=built.requirements | allowed)
