"""A look at a data set: what is in it, and whether its fields fit together."""

# What other packages import from here; the rest is this package's own.
OPEN = ("contact_sheet", "inspection")
