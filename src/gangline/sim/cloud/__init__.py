"""Simulated providers and the machines that they rent out."""
