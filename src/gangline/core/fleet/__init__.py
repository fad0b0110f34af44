"""Decide about nodes: how many there are, which are trusted, and which are too slow."""
