"""Object stores: a folder, a bucket."""
