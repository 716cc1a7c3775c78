"""The list of runs: filter, sort, tag, note, archive and remove run directories."""
