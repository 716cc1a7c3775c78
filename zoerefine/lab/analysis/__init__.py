"""The batch analysis: many runs become one graph, tables and a report page."""

# What other packages import from here; the rest is this package's own.
OPEN = ("analyze", "diff", "groups", "pictures", "report")
