"""What a job will do, take and cost, known before a byte of it is sent."""
