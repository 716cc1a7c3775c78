"""Statistics over seeds and settings."""

# What other packages import from here; the rest is this package's own.
OPEN = ("comparisons", "importance", "significance")
