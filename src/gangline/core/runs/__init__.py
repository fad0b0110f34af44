"""Define a run of a trainer: its contract, metrics, schedule and checkpoints."""
