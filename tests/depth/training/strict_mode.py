"""What `torch.use_deterministic_algorithms` refuses on CUDA, raised for tensors of any device."""

import re

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Operators by the names in torch's documentation, "The following operations will throw".
REFUSED = {
    "torch.nn.AvgPool3d": ["avg_pool3d_backward"],
    "torch.nn.MaxPool3d": ["max_pool3d_with_indices_backward"],  # of torch 2.11
    "torch.nn.AdaptiveAvgPool2d": ["_adaptive_avg_pool2d_backward"],
    "torch.nn.AdaptiveAvgPool3d": ["_adaptive_avg_pool3d_backward"],
    "torch.nn.AdaptiveMaxPool2d": ["adaptive_max_pool2d_backward"],
    "torch.nn.FractionalMaxPool2d": ["fractional_max_pool2d_backward"],
    "torch.nn.FractionalMaxPool3d": ["fractional_max_pool3d_backward"],
    "torch.nn.MaxUnpool1d": ["max_unpool2d"],
    "torch.nn.MaxUnpool2d": ["max_unpool2d"],
    "torch.nn.MaxUnpool3d": ["max_unpool3d"],
    "torch.nn.functional.interpolate": [
        "upsample_linear1d_backward",
        "upsample_bilinear2d_backward",
        "_upsample_bilinear2d_aa_backward",
        "upsample_bicubic2d_backward",
        "_upsample_bicubic2d_aa_backward",
        "upsample_trilinear3d_backward",
    ],
    "torch.nn.ReflectionPad1d": ["reflection_pad1d_backward"],
    "torch.nn.ReflectionPad2d": ["reflection_pad2d_backward"],
    "torch.nn.ReflectionPad3d": ["reflection_pad3d_backward"],
    "torch.nn.NLLLoss": ["nll_loss2d_forward", "nll_loss2d_backward"],
    "torch.nn.CTCLoss": ["_ctc_loss_backward"],
    "torch.nn.EmbeddingBag": ["_embedding_bag_backward", "_embedding_bag_dense_backward"],
    "torch.Tensor.put_": ["put_"],
    "torch.Tensor.scatter_reduce": ["scatter_reduce"],
    "torch.Tensor.resize_": [],  # of quantized tensors, which nothing here has
    "torch.histc": ["histc"],
    "torch.bincount": ["bincount"],
    "torch.median": ["median", "nanmedian"],
    "torch.nn.functional.grid_sample": ["grid_sampler_2d_backward", "grid_sampler_3d_backward"],
    "torch.cumsum": ["cumsum", "cumsum_"],
}


def documented():
    """The names of operations that raise, as the installed torch documents them."""
    text = torch.use_deterministic_algorithms.__doc__
    listed = text[text.index("operations will throw") :]
    listed = listed[: listed.index("In addition")]
    return set(re.findall(r"\* :(?:class|func):`([\w.]+)`", listed))


def is_refused(operator, args):
    """Whether a call of an operator of aten would raise on CUDA."""
    name = operator._schema.name.removeprefix("aten::")
    if name.startswith("cumsum"):
        return args[0].is_floating_point() or args[0].is_complex()
    if name == "bincount":
        return len(args) > 1 and args[1] is not None
    if name in ("median", "nanmedian"):
        return "dim" in operator._schema.overload_name  # the others return no indices
    return any(name in names for names in REFUSED.values())


class StrictCuda(TorchDispatchMode):
    """Raises torch's error for what strict mode refuses on CUDA, in forward and in backward."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if is_refused(operator, args):
            name = operator._schema.name
            raise RuntimeError(f"{name} does not have a deterministic implementation, but you set")
        return operator(*args, **(kwargs or {}))
