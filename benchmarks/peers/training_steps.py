"""Training steps of a refiner: for each number of seconds on stdin, prints JSON {"steps_per_s"}.

Arguments: `ours` or `torch` (torch is loaded first, so OpenMP is as torch comes), and a control
group's folder to enter first, or an empty word.
"""

import json
import os
import sys
import time
from pathlib import Path


def main(side: str, group: str) -> None:
    """Answer until stdin ends."""
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    if side == "torch":
        import torch
    import torch

    import zoerefine  # noqa: F401  # chooses how OpenMP waits
    from zoerefine.config import defaults, merge
    from zoerefine.model import build_refiner

    cfg = defaults()
    merge(cfg, {"MODEL": {"NAME": "guided", "BASE": 24}}, "benchmark")
    torch.manual_seed(0)
    refiner = build_refiner(cfg.MODEL).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(refiner.parameters(), 1e-3)
    rgb01, zoe_m, depth_m = torch.rand(4, 3, 96, 128), *(torch.rand(2, 4, 1, 96, 128) + 1)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        (refiner(rgb01, zoe_m) - depth_m).abs().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    print(json.dumps({"threads": torch.get_num_threads()}), flush=True)
    for line in sys.stdin:
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < float(line):
            step()
            steps += 1
        answer = {"steps_per_s": steps / (time.perf_counter() - start)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
