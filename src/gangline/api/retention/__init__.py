"""HTTP: what is kept, pinned and deleted."""
