"""What a training takes, by number of GPUs. Nothing else in `core` imports it."""
