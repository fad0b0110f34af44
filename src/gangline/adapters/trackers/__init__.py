"""Trackers, one module for each."""
