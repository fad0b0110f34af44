"""Nodes: rented, joined, watched, and given back."""
