"""Layers that training computes with: a base's layer and what is learned for it."""
