"""A command as a job on a node: a run of `gangline exec` that reports as a trainer does."""
