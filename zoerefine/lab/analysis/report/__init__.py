"""The report: one page and its tables."""

# What other packages import from here; the rest is this package's own.
OPEN = ("page_pictures", "paper_tables", "report", "tables")
