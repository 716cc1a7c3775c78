"""The packed cache: frames decoded once, a record a frame, opened with mmap."""

# What other packages import from here; the rest is this package's own.
OPEN = ("cache", "decode", "pack", "verification")
