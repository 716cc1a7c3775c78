"""Queued jobs on Slurm."""

# What other packages import from here; the rest is this package's own.
OPEN = ("commands", "submission")
