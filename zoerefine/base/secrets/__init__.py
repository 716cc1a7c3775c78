"""Secrets: which texts are secret, and how they are kept out of files and messages."""

# What other packages import from here; the rest is this package's own.
OPEN = ("redaction",)
