"""Torch-TensorRT converts every refiner whole, with the wanted types; checked without a GPU.

Its own lowering and converters run on the network of TensorRT for RTX, in a process of their own
(`lower_on_rtx.py`), and torch computes that network's numbers on the CPU
(`tensorrt_interpreter.py`).
"""

import ast
import json
import re
import shutil
import sys
from importlib.metadata import version
from itertools import product
from pathlib import Path

import pytest

from tests.processes import run_program
from zoerefine.base.registries import NETWORKS
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.verify import TOLERANCES

tensorrt = engine_kind("tensorrt")
PACKAGE = Path(sys.prefix) / "torch-tensorrt"  # `make test` puts it there
RELEASES = {"2.13": PACKAGE, "2.14": Path(sys.prefix) / "gpu-tests"}
TYPES = {"fp32": "FLOAT", "fp16": "HALF", "bf16": "BF16", "int8": "FLOAT"}
# The small network in every precision, the others in one.
CASES = [case for case in product(NETWORKS, tensorrt.precisions())
         if case[0] == "small" or case[1] == "fp16"]  # fmt: skip
# Of mean relative depth, against torch in the same types, which rounds in other places.
SAME_TYPES = {"fp32": 1e-5, "fp16": 5e-4, "bf16": 2e-3, "int8": 4e-3}

pytestmark = [
    pytest.mark.skipif(
        not (PACKAGE / "torch_tensorrt").is_dir(),
        reason=f"Torch-TensorRT is not in {PACKAGE}: `make test` installs it",
    ),
    pytest.mark.skipif(
        bool(missing := engine_kind("tensorrt-rtx").missing_requirement()), reason=missing
    ),
]


def parameters(package, file, function):
    """The names of a function's parameters, as Torch-TensorRT's sources have it."""
    tree = ast.parse((package / "torch_tensorrt" / file).read_text())
    [found] = [one for one in ast.walk(tree)
               if isinstance(one, ast.FunctionDef) and one.name == function]  # fmt: skip
    return {one.arg for one in found.args.args + found.args.kwonlyargs}


@pytest.mark.parametrize("release", RELEASES)
def test_its_functions_have_the_parameters_that_are_given(release):
    """A conversion takes unknown ones, too, and ignores them."""
    package = RELEASES[release]
    if not list(package.glob(f"torch_tensorrt-{release}.*.dist-info")):
        pytest.skip(f"Torch-TensorRT {release} is not in {package}: `make test` installs it")
    given = {"arg_inputs", "require_full_compilation", "timing_cache_path", "version_compatible",
             *tensorrt.TUNING}  # fmt: skip
    conversion = "convert_exported_program_to_serialized_trt_engine"
    assert given <= parameters(package, "dynamo/_compiler.py", conversion)
    names = {"serialized_engine", "input_binding_names", "output_binding_names", "device"}
    assert names == parameters(package, "ts/_compiler.py", "embed_engine_in_new_module")
    operands = {"ctx", "target", "source_ir", "name", "input_tensor", "amax", "num_bits",
                "exponent_bits"}  # fmt: skip
    assert operands == parameters(package, "dynamo/conversion/impl/quantize.py", "quantize")
    # Engines without the lean runtime inside: tensorrt-lean names the versions that may run them.
    flags = re.findall(
        r"BuilderFlag\.(VERSION_COMPATIBLE|EXCLUDE_LEAN_RUNTIME)\)",
        (package / "torch_tensorrt/dynamo/conversion/_TRTInterpreter.py").read_text(),
    )
    assert flags == ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What the networks look like, by case."""
    return lower("torch-tensorrt", CASES, tmp_path_factory.mktemp("torch-tensorrt"))


def lower(package, cases, folder):
    """The reports of `lower_on_rtx.py`, by case, with Torch-TensorRT as that package has it."""
    binaries = shutil.ignore_patterns("lib", "bin", "include", "_C.*", "__pycache__")
    for name in ("torch_tensorrt", "dllist"):
        shutil.copytree(PACKAGE / name, folder / name, ignore=binaries)
    program = Path(__file__).with_name("lower_on_rtx.py")
    command = [sys.executable, "-W", "ignore", program, folder, package]
    done = run_program(command, input=json.dumps(cases))
    found = json.loads(done.stdout.splitlines()[-1])
    return dict(zip(cases, found, strict=True))


def faults(report, precision):
    """What is wrong with a network."""
    if "error" in report:
        return [report["error"]]
    found = []
    inner = {kind for channels, kind in report["convolutions"] if channels != 1}
    heads = [kind for channels, kind in report["convolutions"] if channels == 1]
    if inner != {TYPES[precision]} or heads != ["FLOAT"] * 2:
        found.append(f"types of convolutions: {inner} and {heads}")
    # Input and weights of every convolution but the first and the two heads.
    quantized = len(report["convolutions"]) - 3 if precision == "int8" else 0
    for layer in ("QUANTIZE", "DEQUANTIZE"):
        if report["layers"].get(layer, 0) != 2 * quantized:
            found.append(f"{report['layers'].get(layer, 0)} {layer} layers")
    if sum(scales > 1 for scales in report["scales"]) != quantized:
        found.append("scales of weights are not one for each channel")
    return found


@pytest.mark.parametrize(("network", "precision"), CASES)
def test_every_refiner_is_converted_whole_with_the_wanted_types(reports, network, precision):
    report = reports[network, precision]
    assert faults(report, precision) == []
    names = [name for name, *_ in report["inputs"]], [name for name, *_ in report["outputs"]]
    assert names == (tensorrt.INPUTS, tensorrt.OUTPUTS)
    for _, kind, shape in report["inputs"] + report["outputs"]:
        assert (kind, shape[0], shape[2:]) == ("FLOAT", -1, [64, 96])
    assert report["batches"] == [[1, 1, 16]] * 2  # tuned for one frame at a time
    assert report["plan_bytes"] > 50_000
    loaded = f"tensorrt_rtx {version('tensorrt-rtx-cu13-libs')}"  # it takes TensorRT's place
    assert report["requirements"]["TensorRT"] == [loaded]


def wrong_numbers(differences, precision):
    """Which differences are beyond the tolerance of the precision."""
    worst, mean = TOLERANCES[precision]
    allowed = {"refiner": (worst, mean, mean), "same types": (worst, SAME_TYPES[precision], mean)}
    return [
        (against, differences[against])
        for against, limits in allowed.items()
        if any(one > most for one, most in zip(differences[against], limits, strict=True))
    ]


@pytest.mark.parametrize(("network", "precision"), CASES)
def test_the_network_computes_what_the_refiner_computes(reports, network, precision):
    assert wrong_numbers(reports[network, precision]["differences"], precision) == []


def test_torch_tensorrt_rtx_converts_a_refiner_in_the_same_way(tmp_path):
    [report] = lower("torch-tensorrt-rtx", [("small", "fp16")], tmp_path).values()
    assert faults(report, "fp16") == []
    assert wrong_numbers(report["differences"], "fp16") == []
    assert report["plan_bytes"] > 50_000
    [version] = report["requirements"]["TensorRT"]
    assert version.startswith("tensorrt_rtx 1.")
