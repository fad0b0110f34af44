"""A simulated node: its disk, and a trainer that takes its time but computes nothing."""
