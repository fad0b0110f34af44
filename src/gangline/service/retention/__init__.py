"""What is kept after a job's end: for how long, by whose wish, how much it is; and jobs that are deleted."""
