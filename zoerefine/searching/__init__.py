"""From lists in a config to the best trial."""
