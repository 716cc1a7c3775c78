"""The list of runs: filter, sort, tag, note, archive and remove run directories."""

# What other packages import from here; the rest is this package's own.
OPEN = ("index", "labels", "protection", "removal", "selection", "table")
