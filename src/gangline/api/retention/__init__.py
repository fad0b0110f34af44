"""Routes for storage, pinned checkpoints and the deletion of jobs."""
