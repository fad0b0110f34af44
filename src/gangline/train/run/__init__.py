"""Shared by all trainers: the run's directory, ranks, numerics, meters and optimisers."""
