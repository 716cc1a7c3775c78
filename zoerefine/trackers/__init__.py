"""Runs that other trackers recorded on this machine: MLflow, W&B (offline) and TensorBoard."""
