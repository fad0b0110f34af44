"""Notices: who hears what of the project, and what came of it."""
