"""`gangline experiments`: jobs that are submitted together over a grid of settings."""
