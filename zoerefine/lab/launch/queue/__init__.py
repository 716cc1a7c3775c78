"""Queues of jobs: run on this machine, on Ray or on Slurm."""

# What other packages import from here; the rest is this package's own.
OPEN = ("executor", "job_queue", "slurm")
