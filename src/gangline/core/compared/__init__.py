"""What is compared of two jobs, from what is shown of each."""
