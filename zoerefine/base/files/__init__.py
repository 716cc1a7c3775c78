"""Files: atomic writes, locks, pictures, faults of a disk, and which files are our own."""

# What other packages import from here; the rest is this package's own.
OPEN = ("atomic", "file_lock", "images", "own_files", "storage_faults")
