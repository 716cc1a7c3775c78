"""The evaluation protocol a second time, written from its text and independent of ours."""

import numpy as np


def plain_metrics(depth_m, truth_m):
    """The nine metrics of one picture's counted pixels; the depth is clamped to 0.001..10 m."""
    d, t = np.clip(depth_m, 1e-3, 10), truth_m
    logs = np.log(d) - np.log(t)
    ratio = np.maximum(d / t, t / d)
    return {
        "abs_rel": np.mean(np.abs(d - t) / t),
        "sq_rel": np.mean((d - t) ** 2 / t),
        "rmse": np.sqrt(np.mean((d - t) ** 2)),
        "rmse_log": np.sqrt(np.mean(logs**2)),
        "log10": np.mean(np.abs(np.log10(d) - np.log10(t))),
        "silog": 100 * np.std(logs),
        "delta1": np.mean(ratio < 1.25),
        "delta2": np.mean(ratio < 1.25**2),
        "delta3": np.mean(ratio < 1.25**3),
    }
