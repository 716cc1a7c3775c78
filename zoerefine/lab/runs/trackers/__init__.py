"""Runs that other trackers recorded on this machine: MLflow, W&B (offline) and TensorBoard."""

# What other packages import from here; the rest is this package's own.
OPEN = ("mlflow_export", "stores")
