"""Training: the loop, checkpoints, logs."""

# What other packages import from here; the rest is this package's own.
OPEN = ("binding", "check", "checkpoint", "failures", "job", "loop", "verdict")
