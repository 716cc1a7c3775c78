"""An exponential moving average of a network's weights, less noisy than the last weights."""

import copy

import torch
from torch import nn

from zoerefine.model.refiner import CALIBRATED


class WeightAverage:
    """A copy of a network with averaged weights and batch statistics.

    torch's `optim.swa_utils.AveragedModel` keeps a count on the CPU, for which a GPU waits at
    every step.

    Attributes:
        network: the copy.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = copy.deepcopy(network).requires_grad_(False)
        # `load_state_dict` copies into these tensors, so the references stay valid.
        ours, theirs = self.network.state_dict(), network.state_dict()
        # Not of the calibration: a mean of infinite limits would be NaN.
        means = [n for n, v in ours.items() if v.is_floating_point() and n not in CALIBRATED]
        self._means = [ours[name] for name in means], [theirs[name] for name in means]
        self._others = [(ours[name], theirs[name]) for name in ours if name not in means]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after a step, counted from 0; those of step 0 are copied.

        The decay is smaller in the first steps, so that the average of a short training does not
        keep the random initial weights.
        """
        decay = min(self.decay, (1 + step) / (10 + step)) if step else 0.0
        torch._foreach_lerp_(*self._means, 1 - decay)
        for ours, theirs in self._others:
            ours.copy_(theirs)
