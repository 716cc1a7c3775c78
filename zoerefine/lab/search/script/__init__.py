"""Searches over any script: each trial is a launch."""

# What other packages import from here; the rest is this package's own.
OPEN = ("study",)
