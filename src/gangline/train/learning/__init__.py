"""The weights in training, whichever job they belong to: steps, ranks, memory, checkpoints."""
