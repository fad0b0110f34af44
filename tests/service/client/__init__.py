"""Both clients against a real server."""
