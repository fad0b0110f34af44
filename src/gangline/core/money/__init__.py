"""Compute what time and bytes cost, and what a project may spend."""
