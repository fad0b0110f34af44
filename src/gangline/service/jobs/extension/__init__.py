"""Extending jobs that have ended."""
