"""The machine: cores, processor, memory, the device, and a check of all that is installed."""

# What other packages import from here; the rest is this package's own.
OPEN = ("cores", "device", "doctor", "memory", "one_at_a_time", "processor")
