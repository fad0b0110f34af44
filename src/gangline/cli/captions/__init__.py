"""Captions of photos, as a table, by hand or by a model."""
