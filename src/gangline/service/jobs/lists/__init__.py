"""Lists of jobs, what they show of each, and labels."""
