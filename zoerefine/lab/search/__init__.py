"""From lists in a config to the best trial."""

# What other packages import from here; the rest is this package's own.
OPEN = (
    "dashboard",
    "driver",
    "plan",
    "progress",
    "script",
    "space",
    "study",
    "subject",
    "worker",
    "worker_pool",
)
