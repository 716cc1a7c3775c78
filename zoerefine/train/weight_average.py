"""The mean of a network's weights over its last steps, which is steadier than the last weights."""

import copy

import torch
from torch import nn


class Average:
    """A copy of a network that follows it: an exponential mean of weights and statistics.

    torch's own (`optim.swa_utils.AveragedModel`) makes a GPU wait at every step, for a count that
    it keeps on the CPU.

    Attributes:
        network: the copy.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = copy.deepcopy(network).requires_grad_(False)
        # What loads weights copies into these very tensors, so they are looked up once.
        ours, theirs = self.network.state_dict(), network.state_dict()
        means = [name for name, value in ours.items() if value.is_floating_point()]
        self._means = [ours[name] for name in means], [theirs[name] for name in means]
        self._others = [(ours[name], theirs[name]) for name in ours if name not in means]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, 0 being the first, which is copied.

        The mean is over few steps at first: that of a short training would otherwise still hold
        the random weights that it began with.
        """
        decay = min(self.decay, (1 + step) / (10 + step)) if step else 0.0
        torch._foreach_lerp_(*self._means, 1 - decay)
        for ours, theirs in self._others:
            ours.copy_(theirs)
