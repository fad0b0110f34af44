"""`gangline estimate`."""
