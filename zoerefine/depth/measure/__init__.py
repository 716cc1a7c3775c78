"""Measuring a room: a recording's frames, what was measured in them, and a page to click on."""

# What other packages import from here; the rest is this package's own.
OPEN = ("server",)
