"""Decide about jobs: which node gets which one, what a failure means, and why a job waits."""
