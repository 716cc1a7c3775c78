"""Computes a TensorRT network in torch on the CPU, layer by layer, from what the network holds.

It follows TensorRT's documentation of each layer, and knows only the layers and settings that our
refiners use: every other one raises `UnknownLayer`. After each layer it compares type and shape
with those that TensorRT has inferred.
"""

import operator

import torch
import torch.nn.functional as F

TYPES = {
    "FLOAT": torch.float32, "HALF": torch.float16, "BF16": torch.bfloat16, "INT8": torch.int8,
    "INT32": torch.int32, "INT64": torch.int64, "BOOL": torch.bool,
}  # fmt: skip
# TensorRT's classes are not named after its layer types.
CLASSES = {
    "ACTIVATION": "IActivationLayer", "CAST": "ICastLayer", "CONCATENATION": "IConcatenationLayer",
    "CONSTANT": "IConstantLayer", "CONVOLUTION": "IConvolutionLayer",
    "DEQUANTIZE": "IDequantizeLayer", "ELEMENTWISE": "IElementWiseLayer", "GATHER": "IGatherLayer",
    "POOLING": "IPoolingLayer", "QUANTIZE": "IQuantizeLayer", "REDUCE": "IReduceLayer",
    "RESIZE": "IResizeLayer", "SCALE": "IScaleLayer", "SELECT": "ISelectLayer",
    "SHAPE": "IShapeLayer", "SHUFFLE": "IShuffleLayer", "SLICE": "ISliceLayer",
    "SOFTMAX": "ISoftMaxLayer", "UNARY": "IUnaryLayer", "UNSQUEEZE": "IUnsqueezeLayer",
}  # fmt: skip
UNARY = {"EXP": torch.exp, "LOG": torch.log, "ABS": torch.abs}
ELEMENTWISE = {
    "SUM": operator.add, "SUB": operator.sub, "PROD": operator.mul, "POW": operator.pow,
    "MAX": torch.maximum, "MIN": torch.minimum, "GREATER": operator.gt, "LESS": operator.lt,
    "EQUAL": operator.eq, "AND": operator.and_, "OR": operator.or_,
    "FLOOR_DIV": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "DIV": lambda a, b: torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc"),
}  # fmt: skip


class UnknownLayer(Exception):
    """A layer, or a setting of a layer, that is not written here."""


def typed_layers(trt, network):
    """The layers with the name of their type, as objects of their own class.

    TensorRT's bindings give each as an `ILayer`, which has no settings.
    """
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        kind = layer.type.name
        if kind not in CLASSES:
            raise UnknownLayer(f"{layer.name} is a {kind} layer")
        layer.__class__ = getattr(trt, CLASSES[kind])
        yield kind, layer


class Interpreter:
    """Args:
    trt: TensorRT's Python module.
    network: what to compute.
    recorded: Torch-TensorRT's record of weights, by name. The bindings cannot give bfloat16
        weights, so those are taken from there; all others are the network's own.
    """

    def __init__(self, trt, network, recorded):
        self.trt, self.network, self.recorded = trt, network, recorded

    def run(self, **inputs):
        """The outputs in their order, for inputs by name."""
        values = dict(inputs)
        waiting = list(typed_layers(self.trt, self.network))
        while waiting:  # a layer may stand before those that its inputs come from
            later = [one for one in waiting if not self.compute(*one, values)]
            assert len(later) < len(waiting), "the network has a circle"
            waiting = later
        outputs = [self.network.get_output(i) for i in range(self.network.num_outputs)]
        return [values[output.name] for output in outputs]

    def compute(self, kind, layer, values):
        """Add a layer's output to the values by name; False if an input is not there yet."""
        tensors = [layer.get_input(i) for i in range(layer.num_inputs)]
        if any(tensor and tensor.name not in values for tensor in tensors):
            return False
        found = getattr(self, kind.lower())(layer, *(t and values[t.name] for t in tensors))
        output = layer.get_output(0)
        wanted = [max(size, -1) for size in output.shape]
        shape = [-1 if w == -1 else size for size, w in zip(found.shape, wanted, strict=True)]
        if (found.dtype, shape) != (TYPES[output.dtype.name], wanted):
            raise UnknownLayer(
                f"{layer.name} is {output.dtype} {wanted}, not {found.dtype} {shape}"
            )
        assert output.name not in values
        values[output.name] = found
        return True

    def weights(self, layer, attribute):
        """A layer's weights as a flat tensor; None if there are none."""
        found = getattr(layer, attribute)
        if not found.size:
            return None
        if not isinstance(found, self.trt.Weights):
            return torch.from_numpy(found.copy()).flatten()
        recorded = self.recorded[f"{layer.name} {attribute.upper()}"].detach().flatten()
        assert (TYPES[found.dtype.name], found.size) == (recorded.dtype, recorded.numel())
        return recorded

    def require(self, layer, **settings):
        """Raises `UnknownLayer` for any other setting; enumerations by name."""
        for name, wanted in settings.items():
            found = getattr(layer, name)
            found = tuple(found) if isinstance(wanted, tuple) else getattr(found, "name", found)
            if found != wanted:
                raise UnknownLayer(f"{layer.name} has {name} {found}, not {wanted}")

    def activation(self, layer, x):
        self.require(layer, type="RELU")
        return F.relu(x)

    def cast(self, layer, x):
        return x.to(TYPES[layer.to_type.name])

    def concatenation(self, layer, *parts):
        return torch.cat(parts, layer.axis)

    def constant(self, layer):
        found = layer.weights
        assert not isinstance(found, self.trt.Weights)
        return torch.from_numpy(found.copy()).reshape(tuple(layer.shape))

    def convolution(self, layer, x, weights=None):
        self.require(
            layer, padding_mode="EXPLICIT_ROUND_DOWN", pre_padding=tuple(layer.post_padding)
        )
        if weights is None:
            channels = x.shape[1] // layer.num_groups
            size = layer.num_output_maps, channels, *layer.kernel_size_nd
            weights = self.weights(layer, "kernel").reshape(size)
        bias = self.weights(layer, "bias")
        # Sums are float32 in TensorRT, too.
        found = F.conv2d(
            x.float(), weights.float(), None if bias is None else bias.float(),
            tuple(layer.stride_nd), tuple(layer.pre_padding), tuple(layer.dilation_nd),
            layer.num_groups,
        )  # fmt: skip
        return found.to(x.dtype)

    def quantize(self, layer, x, scale):
        self.require(layer, to_type="INT8")
        return (x / along(scale, layer.axis, x)).round().clamp(-128, 127).to(torch.int8)

    def dequantize(self, layer, x, scale):
        return (x * along(scale, layer.axis, x)).to(TYPES[layer.to_type.name])

    def elementwise(self, layer, a, b):
        if layer.op.name not in ELEMENTWISE:
            raise UnknownLayer(f"{layer.name} is a {layer.op.name}")
        assert a.dim() == b.dim() and a.dtype == b.dtype
        return ELEMENTWISE[layer.op.name](a, b)

    def gather(self, layer, x, index):
        self.require(layer, mode="DEFAULT", num_elementwise_dims=0)
        assert index.dim() == 1
        return x.index_select(layer.axis, index)

    def pooling(self, layer, x):
        self.require(
            layer, type="MAX", padding_mode="EXPLICIT_ROUND_DOWN",
            pre_padding=tuple(layer.post_padding),
        )  # fmt: skip
        sizes = (layer.window_size_nd, layer.stride_nd, layer.pre_padding)
        return F.max_pool2d(x, *map(tuple, sizes))

    def reduce(self, layer, x):
        self.require(layer, op="SUM")
        return x.sum(axes_of(layer.axes), keepdim=layer.keep_dims)

    def resize(self, layer, x, *others):
        self.require(
            layer, resize_mode="NEAREST", coordinate_transformation="ASYMMETRIC",
            nearest_rounding="FLOOR", num_inputs=1,
        )  # fmt: skip
        for axis, scale in enumerate(layer.scales):
            places = torch.arange(int(x.shape[axis] * scale)) / scale
            x = x.index_select(axis, places.floor().int())
        return x

    def scale(self, layer, x):
        self.require(layer, mode="CHANNEL", channel_axis=1)
        factor, shift, power = (self.weights(layer, name) for name in ("scale", "shift", "power"))
        assert power is None
        return x * along(factor, 1, x) + along(shift, 1, x)

    def select(self, layer, condition, a, b):
        return torch.where(condition, a, b)

    def shape(self, layer, x):
        return torch.tensor(x.shape, dtype=torch.int64)

    def shuffle(self, layer, x, sizes=None):
        self.require(layer, zero_is_placeholder=True)
        x = x.permute(tuple(layer.first_transpose)[: x.dim()])
        sizes = layer.reshape_dims if sizes is None else sizes.tolist()
        if sizes is not None:
            x = x.reshape([size or x.shape[axis] for axis, size in enumerate(sizes)])
        return x.permute(tuple(layer.second_transpose)[: x.dim()])

    def slice(self, layer, x, *given):
        if layer.axes is not None or layer.mode.name not in ("STRICT_BOUNDS", "CLAMP"):
            raise UnknownLayer(f"{layer.name} has axes or the mode {layer.mode.name}")
        given = (*given, None, None, None)
        start, size, stride = (
            tuple(getattr(layer, name)) if tensor is None else tensor.tolist()
            for name, tensor in zip(("start", "shape", "stride"), given, strict=False)
        )
        for axis in range(x.dim()):
            places = start[axis] + stride[axis] * torch.arange(size[axis])
            if layer.mode.name == "CLAMP":
                places = places.clamp(0, x.shape[axis] - 1)
            x = x.index_select(axis, places)  # raises out of bounds
        return x

    def softmax(self, layer, x):
        [axis] = axes_of(layer.axes)
        return x.softmax(axis)

    def unary(self, layer, x):
        if layer.op.name not in UNARY:
            raise UnknownLayer(f"{layer.name} is a {layer.op.name}")
        return UNARY[layer.op.name](x)

    def unsqueeze(self, layer, x, axes):
        for axis in sorted(axes.tolist()):
            x = x.unsqueeze(axis)
        return x


def along(values, axis, x):
    """One value, or one for each place along an axis, in a shape that broadcasts with `x`."""
    if values.numel() == 1:
        return values.reshape(())
    sizes = [1] * x.dim()
    sizes[axis] = -1
    return values.reshape(sizes)


def axes_of(mask):
    """The axes whose bits are set."""
    return [axis for axis in range(8) if mask >> axis & 1]
