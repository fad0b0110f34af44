"""Submit, show and steer jobs over a grid of settings as one, and release them."""
