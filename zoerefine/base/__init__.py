"""What both wings stand on: errors, files, YAML, the config, secrets, the machine, run folders."""
