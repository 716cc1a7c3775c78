"""Where a step's time goes: waiting for data, copying to the device, computing."""

import time
from contextlib import suppress

import torch


class StepClock:
    """Adds up steps; `take` gives the means since the last one, `totals` those of the process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._since = _Sums()
        self._total = _Sums()
        self.restart()

    def restart(self) -> None:
        """Start timing a step here; time before it (an evaluation, say) is nobody's."""
        self._mark = time.perf_counter()

    def step(self, images: int, wait_s: float, copy_s: float) -> None:
        """A step of so many images is done; `wait_s` and `copy_s` are parts of its time."""
        now = time.perf_counter()
        for sums in (self._since, self._total):
            sums.steps += 1
            sums.images += images
            sums.wait_s += wait_s
            sums.copy_s += copy_s
            sums.wall_s += now - self._mark
        self._mark = now

    def take(self) -> dict[str, float]:
        """Seconds a step in parts, and images/s, since the last `take`."""
        sums, self._since = self._since, _Sums()
        steps = max(1, sums.steps)
        on_gpu = self._device.type == "cuda"
        # A GPU computes while the next batch is copied; a CPU does one after the other.
        not_computing = sums.wait_s if on_gpu else sums.wait_s + sums.copy_s
        values = {
            "wait_s": sums.wait_s / steps,
            "copy_s": sums.copy_s / steps,
            "compute_s": max(0.0, sums.wall_s - not_computing) / steps,
            **sums.rates(),
        }
        if on_gpu:
            values["gpu_peak_gib"] = torch.cuda.max_memory_allocated(self._device) / 2**30
            with suppress(Exception):  # a card that does not tell, a part of one (MIG), say
                values["gpu_use"] = torch.cuda.utilization(self._device) / 100
        return values

    def totals(self) -> dict[str, float]:
        """Rates of all steps of this process."""
        return self._total.rates()


class _Sums:
    def __init__(self) -> None:
        self.steps = self.images = 0
        self.wait_s = self.copy_s = self.wall_s = 0.0

    def rates(self) -> dict[str, float]:
        wall = self.wall_s or 1.0
        return {"images_per_s": self.images / wall, "wait_share": self.wait_s / wall}
