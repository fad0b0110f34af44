"""Data sets of photos: their versions, the check of each, and their removal."""
