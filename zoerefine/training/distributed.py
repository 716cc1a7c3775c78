"""Data-parallel training: gradients and batch statistics over all ranks."""

import warnings

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zoerefine.ranks import sum_over_ranks, world_size


class GlobalBatchNorm(nn.BatchNorm2d):
    """Batch normalisation over the samples of all ranks, on any device.

    torch.nn.SyncBatchNorm does the same, but on GPUs only.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or world_size() == 1:
            return super().forward(x)
        values = x.float()
        # Not new_tensor: on a GPU it copies from the CPU and waits for all queued work.
        count = values.new_full((1,), values.numel() / self.num_features)
        sums = torch.cat([values.sum((0, 2, 3)), values.square().sum((0, 2, 3)), count])
        total, squares, count = sum_over_ranks(sums).split([self.num_features] * 2 + [1])
        mean = total / count
        variance = (squares / count - mean.square()).clamp(min=0)
        unbiased = variance.detach() * count / (count - 1).clamp(min=1)
        self.update_running_statistics(mean.detach(), unbiased)
        shape = (1, -1, 1, 1)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        return (values * scale.view(shape) + shift.view(shape)).to(x.dtype)

    @torch.no_grad()
    def update_running_statistics(self, mean: Tensor, variance: Tensor) -> None:
        """As BatchNorm2d does."""
        assert self.momentum and self.running_mean is not None and self.running_var is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)


def global_norm(norm: nn.BatchNorm2d) -> GlobalBatchNorm:
    """A global batch normalisation with the same settings and state."""
    made = GlobalBatchNorm(norm.num_features, norm.eps, norm.momentum)
    made.load_state_dict(norm.state_dict())
    return made.to(norm.weight.device)


def data_parallel(refiner: nn.Module) -> nn.Module:
    """The refiner wrapped for training by all ranks; with one rank, the refiner itself.

    Its batch normalisations become global in place; parameters keep their names.
    """
    if world_size() == 1:
        return refiner
    for name, module in list(refiner.named_modules()):
        if type(module) is nn.BatchNorm2d:
            refiner.set_submodule(name, global_norm(module))
    with warnings.catch_warnings():  # torch 2.11 has no other name for this option
        warnings.simplefilter("ignore", FutureWarning)
        return DistributedDataParallel(refiner, broadcast_buffers=False)
