"""Jobs that are submitted together over a grid of settings: what they are, when each is released, and which is best."""
