"""The pictures of a job: the grid of prompts and steps, one of them large, and two beside each other."""
