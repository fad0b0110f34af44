"""The queue: who waits, why, and what would help."""
