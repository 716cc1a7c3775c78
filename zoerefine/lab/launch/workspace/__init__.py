"""The workspace of a run: checked out at its commit, verified, and what the job left there."""

# What other packages import from here; the rest is this package's own.
OPEN = ("checkout", "left", "workspace")
