"""The metric that chooses the best weights, trials and runs. Reading it needs no torch."""

SELECTION_METRIC = "abs_rel"  # a name of `metrics.METRICS`; lower is better
