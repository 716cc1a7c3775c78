"""The search space: what a config lists under SEARCH, read and checked."""

# What other packages import from here; the rest is this package's own.
OPEN = ("checks", "reader", "script_section", "space")
