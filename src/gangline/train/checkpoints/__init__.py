"""Checkpoints on disk, whole or in shards, what was prepared, and how many samples fit into memory."""
