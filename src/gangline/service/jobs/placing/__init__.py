"""Where jobs that wait, or are only asked about, could run."""
