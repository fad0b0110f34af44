"""Simulate a node: its disk, and a trainer that takes time but computes nothing."""
