"""Projects, and who may do what."""
