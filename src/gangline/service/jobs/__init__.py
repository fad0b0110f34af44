"""A job from its submission to its end, and what is shown of it."""
