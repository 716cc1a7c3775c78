"""Git: mirrors, objects, submodules, uncommitted changes, each command hardened."""

# What other packages import from here; the rest is this package's own.
OPEN = ("address", "changes", "commands", "mirror")
