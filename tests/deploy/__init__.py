"""What `deploy/` has: images, and what runs them."""
