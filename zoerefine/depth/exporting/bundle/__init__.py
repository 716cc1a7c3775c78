"""The bundle: one file with the engine and its manifest, verified before it is loaded."""

# What other packages import from here; the rest is this package's own.
OPEN = ("bundle", "containers", "manifest", "trust")
