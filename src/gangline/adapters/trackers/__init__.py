"""Trackers: one file for one of them."""
