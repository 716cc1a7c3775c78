"""The commands, one a file: each parses its arguments and calls the library."""
