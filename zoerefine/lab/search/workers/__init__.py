"""Worker processes that run the trials of a study."""

# What other packages import from here; the rest is this package's own.
OPEN = ("pool", "worker")
