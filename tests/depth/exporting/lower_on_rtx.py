"""Torch-TensorRT's lowering and converters on TensorRT for RTX's network, without a GPU.

    python lower_on_rtx.py FOLDER PACKAGE < cases.json > reports.json

Runs in a process of its own, because it changes torch. FOLDER is a copy of Torch-TensorRT's Python
files without its libraries, which need TensorRT's. With PACKAGE `torch-tensorrt`, TensorRT for RTX,
which can be installed, takes the place of TensorRT: their networks have the same layers and types.
With `torch-tensorrt-rtx`, which has the same Python files, nothing takes another's place. A case
names a network and a precision; its report lists the layers of the TensorRT network that our code
gets, and compares its numbers, computed in torch, with those of the refiner.
"""

import ast
import json
import logging
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
from tensorrt_interpreter import Interpreter
from torch import Tensor

from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.model import build_refiner

TENSORRT = """
import sys
import tensorrt_rtx_bindings as bindings
from tensorrt_rtx_bindings import tensorrt_rtx as tensorrt
globals().update({name: value for name, value in vars(bindings).items() if name[:2] != "__"})
__version__ = "11.0.0"
sys.modules["tensorrt.tensorrt"] = tensorrt
"""
# The package of this name, which holds only these lines, comes without a wheel.
TENSORRT_RTX = """
from tensorrt_rtx_bindings import *
from tensorrt_rtx_bindings import __version__, tensorrt_rtx
"""
HEIGHT, WIDTH = 64, 96
BASES = {"unet": 16}
CALIBRATION = {"log_factor": 0.05, "strength": 0.8, "limit": 0.3, "spread_factor": 1.2}


def replace_tensorrt_and_gpu(folder, package):
    """Make Torch-TensorRT importable, and answer what it asks of a GPU."""
    for name, code in (("tensorrt", TENSORRT), ("tensorrt_rtx", TENSORRT_RTX)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text(code)
    # Torch-TensorRT looks up by which package it was installed.
    facts = folder / f"{package.replace('-', '_')}-2.13.0.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.13.0\n")
    (facts / "top_level.txt").write_text("torch_tensorrt\n")
    sys.path.insert(0, str(folder))
    torch._C._CudaDeviceProperties = object
    gpu = SimpleNamespace(major=8, minor=9, name="none")
    torch.cuda.get_device_capability = lambda *_: (8, 9)
    torch.cuda.get_device_properties = lambda *_: gpu
    torch.cuda.current_device = lambda: 0
    torch.cuda.mem_get_info = lambda *_: (2**34, 2**34)
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None
    torch.nn.Module.cuda = lambda self, *_: self


def record_networks(reports, networks):
    """Let Torch-TensorRT make its network, describe it, and build it for one kind of card."""
    from torch_tensorrt.dynamo.conversion import _TRTInterpreter as interpreter

    tensorrt = sys.modules["tensorrt"]  # TensorRT for RTX, if Torch-TensorRT has put it there

    def run(self, *_):
        self._construct_trt_network_def()
        config = self.builder.create_builder_config()
        for profile in self.optimization_profiles or []:
            config.add_optimization_profile(profile)
        config.num_compute_capabilities = 1
        config.set_compute_capability(tensorrt.ComputeCapability.SM89, 0)
        plan = bytes(self.builder.build_serialized_network(self.ctx.net, config) or b"")
        reports.append(describe(self.ctx.net, self.optimization_profiles, len(plan)))
        networks.append(Interpreter(tensorrt, self.ctx.net, dict(self.ctx.weight_refit_map)))
        return interpreter.TRTInterpreterResult(
            SimpleNamespace(serialize=lambda: plan), self._input_names, self._output_names,
            self.ctx.requires_output_allocator, self.ctx.requires_native_multidevice,
        )  # fmt: skip

    interpreter.TRTInterpreter.run = run


def describe(network, profiles, plan_bytes):
    """The network's ends, its layers by type, and the types of its convolutions."""
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    [profile] = profiles
    return {
        "inputs": [end(tensor) for tensor in inputs],
        "outputs": [end(tensor) for tensor in outputs],
        "batches": [[shape[0] for shape in profile.get_shape(one.name)] for one in inputs],
        "layers": Counter(layer.type.name for layer in layers),
        "convolutions": [
            (layer.get_output(0).shape[1], layer.get_output(0).dtype.name)
            for layer in layers
            if layer.type.name == "CONVOLUTION"
        ],
        # How many scales each quantization has: one, or one for each output channel.
        "scales": [
            max(1, *layer.get_input(1).shape, 1)
            for layer in layers
            if layer.type.name == "QUANTIZE"
        ],
        "plan_bytes": plan_bytes,
    }


def end(tensor):
    return [tensor.name, tensor.dtype.name, list(tensor.shape)]


def replace_embedding(folder):
    """Torch-TensorRT's embedding is C++. A function with its arguments takes its place."""
    import torch_tensorrt

    from zoerefine.depth.exporting.engines import tensorrt_engine

    path = folder / "torch_tensorrt" / "ts" / "_compiler.py"
    embed = with_arguments_of(path, "embed_engine_in_new_module")

    def embedded(*values, **named):
        given = embed(*values, **named)  # raises TypeError for arguments that do not exist
        assert isinstance(given["serialized_engine"], bytes)
        assert str(given["device"]) == "Device(type=DeviceType.GPU, gpu_id=0)"
        several = len(given["output_binding_names"]) > 1
        return torch.jit.script(TwoOutputs() if several else OneOutput())

    torch_tensorrt.ts = SimpleNamespace(embed_engine_in_new_module=embedded)
    tensorrt_engine.missing_requirement = lambda: ""
    tensorrt_engine.runtime_abi = lambda: "9"


def with_arguments_of(path, name):
    """A function that takes the arguments of one in a file, and returns them by name."""
    functions = ast.parse(path.read_text()).body
    [found] = [node for node in functions if getattr(node, "name", "") == name]
    for argument in found.args.args:
        argument.annotation = None
    found.args.defaults = [ast.Constant(None) for _ in found.args.defaults]
    found.returns, found.body = None, ast.parse("return locals()").body
    names = {}
    module = ast.fix_missing_locations(ast.Module([found], []))
    exec(compile(module, str(path), "exec"), names)
    return names[name]


class OneOutput(torch.nn.Module):
    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> Tensor:
        return zoe_m


class TwoOutputs(torch.nn.Module):
    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> tuple[Tensor, Tensor]:
        return zoe_m, zoe_m


def source_of(network):
    """A refiner with random weights, batch norm and calibration.

    Constant ones would let the builder leave layers out. Depth changes by about 20%.
    """
    torch.manual_seed(0)
    model = {"NAME": network, "BASE": BASES.get(network, 8), "MAX_LOG": 1.0, "CONFIDENCE": True}
    refiner = build_refiner(model).eval()
    for values in refiner.parameters():
        if values.dim() > 1:
            torch.nn.init.kaiming_normal_(values)
    for norm in refiner.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            for values in (norm.weight, norm.running_var):
                torch.nn.init.uniform_(values, 0.7, 1.3)
            for values in (norm.bias, norm.running_mean):
                torch.nn.init.normal_(values, std=0.2)
    with torch.no_grad():
        rgb01, zoe_m = next(noise())
        inputs = torch.cat([rgb01, zoe_m.log1p(), zoe_m], 1)
        for head, found in zip(("head", "scale_head"), refiner.backbone(inputs), strict=True):
            refiner.get_parameter(f"backbone.{head}.weight").mul_(0.2 / found.std())
        for name, value in CALIBRATION.items():
            refiner.get_buffer(name).fill_(value)
        refiner.trained.fill_(True)
    return ExportSource(refiner, HEIGHT, WIDTH, noise)


def noise(batch=1):
    """The same two batches at every call."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        rgb01 = torch.rand(batch, 3, HEIGHT, WIDTH, generator=generator)
        zoe_m = torch.rand(batch, 1, HEIGHT, WIDTH, generator=generator) * 7 + 0.4
        zoe_m[:, :, 3:9] = 0
        yield rgb01, zoe_m


def compare(source, precision, network):
    """The network's numbers against the refiner's, and against torch's in the same types."""
    found, expected, same = [], [], []
    core = source.core(precision)
    with torch.inference_mode():
        for batch in (1, 3):
            rgb01, zoe_m = next(noise(batch))
            found.append(network.run(rgb01=rgb01, zoe_m=zoe_m))
            expected.append(source.refiner.refine(rgb01, zoe_m))
            same.append(core(rgb01, zoe_m))
    return {"refiner": differences(found, expected), "same types": differences(found, same)}


def differences(found, expected):
    """The worst depth in metres, the mean relative depth, and the mean spread."""
    (depth_m, spread), (expected_m, expected_spread) = (
        [torch.cat(values) for values in zip(*batches, strict=True)]
        for batches in (found, expected)
    )
    error_m = (depth_m - expected_m).abs()
    relative = error_m / expected_m.clamp(min=0.05)
    in_spread = (spread - expected_spread).abs().mean()
    return [error_m.max().item(), relative.mean().item(), in_spread.item()]


def main():
    folder, package = Path(sys.argv[1]), sys.argv[2]
    replace_tensorrt_and_gpu(folder, package)
    logging.disable(logging.CRITICAL)
    from zoerefine.base.errors import UserError
    from zoerefine.depth.exporting.engines import tensorrt_engine

    reports, networks = [], []
    record_networks(reports, networks)
    replace_embedding(folder)
    for network, precision in json.load(sys.stdin):
        count = len(reports)
        source = source_of(network)
        try:
            built = tensorrt_engine.build(source, precision)
            reports[count]["requirements"] = built.requirements
            reports[count]["differences"] = compare(source, precision, networks[-1])
        except UserError as error:
            reports[count:] = [{"error": str(error)}]
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
