"""Sets of runs that are hard to draw: every picture of the analysis is drawn of each of them."""

import numpy as np


def add_groups(runs, finals, seeds=3, epochs=12, name="network {}", parameters=None, **results):
    """Groups whose curves fall to these final values."""
    rng = np.random.default_rng(0)
    for number, final in enumerate(finals):
        for seed in range(seeds):
            value = abs(final * (1 + 0.02 * rng.normal()))
            curve = [value * (1 + 4 * np.exp(-epoch / 2)) for epoch in range(epochs)]
            runs.add(
                f"r{number}-{seed}", {"NAME": name.format(number)}, seed=seed, scenes=(value,),
                curve=curve, parameters=(parameters or [10**6] * len(finals))[number], **results,
            )  # fmt: skip


NAN = float("nan")
SETS = {
    "one run": {"finals": [0.1], "seeds": 1},
    "three networks": {"finals": [0.08, 0.11, 0.2], "parameters": [10**6, 3 * 10**5, 14 * 10**6]},
    "equal values": {"finals": [0.1] * 7},
    "long names": {"finals": [0.1, 0.101, 0.102], "name": "a very long name of a network, no. {}"},
    "NaN": {"finals": [0.1, NAN, 0.2]},
    "only NaN": {"finals": [NAN, NAN], "seeds": 1},
    "worse than the pseudo depth": {"finals": [2.0, 3.0, 2.5]},
    "near the pseudo depth": {"finals": [0.61, 0.59, 0.6]},
    "one seed": {"finals": [0.08, 0.09, 0.1, 0.12], "seeds": 1},
    "one epoch": {"finals": [0.08, 0.09], "epochs": 1},
    "a thousand epochs": {"finals": [0.1, 0.2], "epochs": 1000, "seeds": 1},
    "forty groups": {"finals": np.linspace(0.1, 0.2, 40).tolist(), "seeds": 1},
}
