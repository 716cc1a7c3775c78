"""Launching: a commit and a config become a recorded run in a workspace of its own."""
