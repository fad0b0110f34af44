"""Routes of experiments."""
