"""The simulator: the real service, the real agent and the real SQL in virtual time, between simulated edges that fail."""
