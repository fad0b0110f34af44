"""Nodes: they are rented or join, are watched, and are returned."""
