"""Object stores: a folder behind the server, a plain folder, and an S3 bucket."""
