"""Exit codes of commands and jobs; docs/exit-codes.md has all."""

USER_ERROR, INTERRUPTED, KILLED = 2, 130, 137
