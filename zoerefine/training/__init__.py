"""Training: the loop, checkpoints, logs."""
