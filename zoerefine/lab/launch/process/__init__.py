"""The processes of a job: started, watched, stopped; on one node or several."""

# What other packages import from here; the rest is this package's own.
OPEN = ("child", "end_reason", "nodes", "output", "torchrun")
