"""The sample pictures of jobs: the grid, thumbnails, and the step that is chosen."""
