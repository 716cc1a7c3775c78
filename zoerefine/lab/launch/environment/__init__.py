"""The Python environment of a commit: made once from its lock file, shared by equal commits."""

# What other packages import from here; the rest is this package's own.
OPEN = ("build", "environment")
