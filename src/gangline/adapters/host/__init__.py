"""A machine's own disk and processes."""
