"""List the sample pictures of a job, make small copies of them, and choose the step that is best."""
