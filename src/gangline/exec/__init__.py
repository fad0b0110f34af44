"""`gangline exec`: make any training script survive interruption with nothing but a bucket, without a server."""
