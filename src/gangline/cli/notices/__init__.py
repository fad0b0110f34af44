"""Commands about endpoints and their notices."""
