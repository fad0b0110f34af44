"""Say of the jobs that wait who comes when, why each waits, and what would help."""
