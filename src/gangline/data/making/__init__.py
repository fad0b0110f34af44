"""Make a data set: convert sources into a Lance table."""
