"""What operators ask of a server: whether it is ready, and its metrics."""
