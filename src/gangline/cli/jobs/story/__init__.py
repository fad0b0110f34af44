"""Show what happened to one job."""
