"""Keys, join tokens and secrets."""
