"""Notifiers: they report events to the outside."""
