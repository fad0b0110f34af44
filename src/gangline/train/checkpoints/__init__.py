"""Checkpoints on disk, whole or in shards, and what was prepared."""
