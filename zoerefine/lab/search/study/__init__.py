"""The study: trials in a storage, who works on them, what is tried next, when it ends."""

# What other packages import from here; the rest is this package's own.
OPEN = ("claims", "earlier", "ending", "enqueue", "pruning", "storage", "study", "trials")
