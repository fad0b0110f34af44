"""Entity tags: what a client has already, and what it saw when it decided."""
