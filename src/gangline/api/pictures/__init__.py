"""Routes for the sample pictures of jobs."""
