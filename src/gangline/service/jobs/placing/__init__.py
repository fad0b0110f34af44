"""Find where jobs could run, whether they wait or are only asked about."""
