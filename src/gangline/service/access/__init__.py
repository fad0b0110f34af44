"""Projects, and the credentials that grant access to them."""
