"""Submit a job again with some other settings."""
