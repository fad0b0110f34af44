"""Sections of settings: each setting is declared once, and inherited by the specs that want it."""
