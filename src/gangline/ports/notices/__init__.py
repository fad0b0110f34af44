"""The edges of notices: an HTTP client that requests what users name, and a mail server."""
