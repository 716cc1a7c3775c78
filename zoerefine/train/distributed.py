"""The same training in many processes: gradients, batch statistics and losses over all ranks."""

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zoerefine.ranks import sum_over_ranks, world


class GlobalBatchNorm(nn.BatchNorm2d):
    """Batch normalisation over the samples of all ranks, on any device.

    (torch.nn.SyncBatchNorm does this on GPUs alone.)
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or world() == 1:
            return super().forward(x)
        values = x.float()
        count = values.new_tensor([values.numel() / self.num_features])
        sums = torch.cat([values.sum((0, 2, 3)), values.square().sum((0, 2, 3)), count])
        total, squares, count = sum_over_ranks(sums).split([self.num_features] * 2 + [1])
        mean = total / count
        variance = (squares / count - mean.square()).clamp(min=0)
        self.remember(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        shape = (1, -1, 1, 1)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        return (values * scale.view(shape) + shift.view(shape)).to(x.dtype)

    @torch.no_grad()
    def remember(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics, as BatchNorm2d does."""
        assert self.momentum and self.running_mean is not None and self.running_var is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)


def over_ranks(refiner: nn.Module) -> nn.Module:
    """The refiner, trained by all ranks together; itself where there is one.

    Its batch normalisations become global in place: parameters and their names stay.
    """
    if world() == 1:
        return refiner
    for module in refiner.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = GlobalBatchNorm
    return DistributedDataParallel(refiner, broadcast_buffers=False)
