"""Files: atomic writes, locks, pictures, and which files are our own."""

# What other packages import from here; the rest is this package's own.
OPEN = ("atomic", "file_lock", "images")
