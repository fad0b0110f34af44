"""Data sets of photos: names, versions by content, and what a check finds."""
