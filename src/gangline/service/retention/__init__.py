"""Expire, list and delete what jobs keep after their end."""
