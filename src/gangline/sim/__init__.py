"""Simulate a fleet: the real service, agent and SQL run in virtual time, between simulated edges that fail."""
