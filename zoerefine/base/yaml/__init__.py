"""YAML: read with line numbers, written so that it reads back equal, edited; keys with dots."""

# What other packages import from here; the rest is this package's own.
OPEN = ("equal_values", "keys", "script_overrides", "read", "write")
