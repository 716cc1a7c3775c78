"""Pictures of the analysis: the overview and its parts."""

# What other packages import from here; the rest is this package's own.
OPEN = ("captions", "overview", "settings", "style")
