"""Runs of any origin, read: found in folders, filtered, with settings, metrics and provenance."""

# What other packages import from here; the rest is this package's own.
OPEN = ("collect", "filter", "find", "group_key", "metrics", "read", "record", "stored", "trackers")
