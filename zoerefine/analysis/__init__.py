"""From many runs to one clear graph."""
