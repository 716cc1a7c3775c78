"""Launching: a commit and a config become a recorded run in a workspace of its own."""

# What other packages import from here; the rest is this package's own.
OPEN = (
    "git",
    "home",
    "housekeeping",
    "included",
    "job",
    "launcher",
    "notify",
    "plan",
    "process",
    "queue",
    "record",
    "variables",
    "workspace",
)
