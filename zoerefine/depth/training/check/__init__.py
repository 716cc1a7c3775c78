"""`zoerefine check` and `profile`: is this training ready, and where does a step's time go."""

# What other packages import from here; the rest is this package's own.
OPEN = ("checks", "profile")
