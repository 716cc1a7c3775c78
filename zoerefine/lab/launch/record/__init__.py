"""What a launch records, and what is made of it: show it, compare results, reproduce it."""

# What other packages import from here; the rest is this package's own.
OPEN = ("comparison", "provenance", "reproduce", "show", "times_and_speeds")
