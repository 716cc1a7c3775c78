"""`.pt2` packages with a TensorRT engine inside: built by Torch-TensorRT's own code, loaded, run.

The engine class is the substitute; test_torch_tensorrt_runtime.py has the real one, and test_cpp.py
how a C++ program runs such a bundle.
"""

import zipfile

import pytest
import torch

from tests.depth.exporting.substitute_engine import ABI, compiled_substitute
from tests.processes import CHECKOUT, run_new_python, run_python
from zoerefine.base.errors import UserError
from zoerefine.depth.exporting.bundle.bundle import load_bundle
from zoerefine.depth.exporting.verify import compare_with_eager

RUN = """
import sys
import torch
from tests.depth.exporting.run_with_gpu_fuser import frames
from zoerefine.depth.exporting.bundle.bundle import load_bundle
library, bundle = sys.argv[1:]
torch.ops.load_library(library)
engine = load_bundle(bundle)
for size in (24, 32), (48, 64), (30, 44), (1, 1):
    for batch in (1, 4, 16, 40):
        rgb_u8, zoe_u16 = frames(batch, *size)
        depth, *spread = engine.outputs(rgb_u8, zoe_u16)
        assert (depth.int() - 2 * zoe_u16.int()).abs().max() <= 1
        if spread and size == (24, 32):
            expected = zoe_u16.float() / 256 / 4 * 10000
            assert (spread[0].float() - expected).abs().max() <= 1
print(len(spread) + 1, "torch_tensorrt" in sys.modules, "torch._inductor" in sys.modules)
"""


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_built_bundle_runs_in_another_process_with_the_runtime_alone(
    tensorrt_pt2_bundles, request, outputs
):
    """A batch above the largest is split; pictures of any size."""
    library = compiled_substitute(request.config.cache)
    done = run_new_python(RUN, library, tensorrt_pt2_bundles / f"{outputs}.pt2", cwd=CHECKOUT)
    assert done.stdout == f"{outputs} False False\n"


def test_the_engine_is_in_the_package_once(tensorrt_pt2_bundles):
    with zipfile.ZipFile(tensorrt_pt2_bundles / "2.pt2") as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    [(_, size)] = [one for one in sizes.items() if "/constants/" in one[0]]
    assert size > 50_000  # with a plan of TensorRT for RTX
    library = max(size for name, size in sizes.items() if name.endswith(".so"))
    assert library < 1_000_000


def test_without_the_runtime_the_error_is_one_line(tensorrt_pt2_bundles):
    code = (
        "import sys\nfrom zoerefine.cli import run_command as run\n"
        "from zoerefine.depth.exporting.bundle.bundle import load_bundle\n"
        "run(lambda: load_bundle(sys.argv[1]))"
    )
    done = run_python(code, tensorrt_pt2_bundles / "1.pt2")
    [line] = done.stderr.strip().splitlines()
    assert f"was built for {ABI} 9; this machine has no {ABI}: pip install" in line


def test_a_batch_that_the_engine_does_not_take_is_one_line(tensorrt_pt2_bundles, request, frames):
    torch.ops.load_library(compiled_substitute(request.config.cache))
    engine = load_bundle(tensorrt_pt2_bundles / "1.pt2")
    rgb, zoe = (torch.from_numpy(one) for one in frames(3, 24, 32))

    def twice(rgb_u8, zoe_u16):
        return [(zoe_u16.int() * 2).to(torch.uint16)]

    assert compare_with_eager(engine.forward, twice, rgb, zoe, (1, 16)).max_abs_err_m == 0
    with pytest.raises(
        UserError, match=r"does not run at batch 17: .*setting the input shape: not"
    ):
        compare_with_eager(engine.forward, twice, rgb, zoe, (17,))
