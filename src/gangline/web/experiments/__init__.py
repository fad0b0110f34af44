"""Experiments: their list, and one with its jobs, its curves and its pictures beside each other."""
