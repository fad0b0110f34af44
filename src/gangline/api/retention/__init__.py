"""Routes for what is kept, pinned and deleted."""
