"""Routes for data sets of photos."""
