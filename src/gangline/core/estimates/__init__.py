"""Estimate the time, memory and cost of a training by number of GPUs. Nothing else in `core` imports it."""
