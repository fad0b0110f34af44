"""What a job keeps: results, checkpoints, the storage that they take, and their removal."""
