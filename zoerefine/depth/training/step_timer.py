"""The time of training steps in parts: waiting for data, copying to the device, computing."""

import time
from contextlib import suppress

import torch


class StepTimer:
    """Sums times over steps: since the last `take`, and since the process began (`totals`)."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._recent = _StepSums()
        self._total = _StepSums()
        self.restart()

    def restart(self) -> None:
        """Start timing a step now; time since the last step (of an evaluation) is not counted."""
        self._mark = time.perf_counter()

    def step(self, images: int, wait_s: float, copy_s: float) -> None:
        """Add a finished step; `wait_s` and `copy_s` are parts of its time."""
        now = time.perf_counter()
        for sums in (self._recent, self._total):
            sums.steps += 1
            sums.images += images
            sums.wait_s += wait_s
            sums.copy_s += copy_s
            sums.wall_s += now - self._mark
        self._mark = now

    def take(self) -> dict[str, float]:
        """Mean seconds of a step in parts, and images/s, since the last `take`."""
        sums, self._recent = self._recent, _StepSums()
        steps = max(1, sums.steps)
        on_gpu = self._device.type == "cuda"
        # A GPU copies the next batch while it computes; a CPU does one after the other.
        not_computing = sums.wait_s if on_gpu else sums.wait_s + sums.copy_s
        values = {
            "wait_s": sums.wait_s / steps,
            "copy_s": sums.copy_s / steps,
            "compute_s": max(0.0, sums.wall_s - not_computing) / steps,
            **sums.rates(),
        }
        if on_gpu:
            values["gpu_peak_gib"] = torch.cuda.max_memory_allocated(self._device) / 2**30
            with suppress(Exception):  # some GPUs (a MIG slice) do not report it
                values["gpu_use"] = torch.cuda.utilization(self._device) / 100
        return values

    def totals(self) -> dict[str, float]:
        """Rates over all steps of this process."""
        return self._total.rates()


class _StepSums:
    def __init__(self) -> None:
        self.steps = self.images = 0
        self.wait_s = self.copy_s = self.wall_s = 0.0

    def rates(self) -> dict[str, float]:
        wall = self.wall_s or 1.0
        return {"images_per_s": self.images / wall, "wait_share": self.wait_s / wall}
