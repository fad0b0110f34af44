"""Use cases of one job, from its submission to its end, and the views of it."""
