"""What a search shows: progress, the dashboard and its page."""

# What other packages import from here; the rest is this package's own.
OPEN = ("dashboard", "notes", "page", "progress")
