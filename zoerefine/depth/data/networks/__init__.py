"""Networks that predict metric depth, and the pseudo depth that they add to a data set."""

# What other packages import from here; the rest is this package's own.
OPEN = ("add_pseudo", "kinds", "network", "source")
