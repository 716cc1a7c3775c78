"""Data sets on disk: one reader for each layout."""

# What other packages import from here; the rest is this package's own.
OPEN = ("csv_table", "habitatdyn", "readers", "recordings")
