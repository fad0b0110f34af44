"""Data sets of photos: what of a folder belongs to one, and what its pictures show."""
