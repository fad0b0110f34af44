"""Access to a machine's own disk and processes."""
