"""Nodes: how many, which are trusted, how fast they are."""
