"""From an engine bundle and pictures to refined depth."""
