"""Routes for endpoints and their notices."""
