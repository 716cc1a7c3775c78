"""From lists in a config to the best trial."""

# What other packages import from here; the rest is this package's own.
OPEN = (
    "display",
    "driver",
    "plan_lines",
    "script",
    "space",
    "study",
    "subject",
    "subjects",
    "workers",
)
