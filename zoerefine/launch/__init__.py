"""From a commit and a config to a run: mirrors, workspaces, provenance, executors."""
