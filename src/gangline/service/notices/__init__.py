"""Endpoints that receive the facts of their project, and the sender of these notices."""
