"""Checkpoints on disk, whole or sharded, prepared tensors, and the microbatch sizes that fit into memory."""
