"""Our own training as the subject of a search."""

# What other packages import from here; the rest is this package's own.
OPEN = ("plan", "trials")
