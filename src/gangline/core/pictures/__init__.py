"""Sample pictures of a job: their names, what is known of each, and whose weights are stored."""
