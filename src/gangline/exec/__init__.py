"""`gangline exec`: any training script, made to survive interruption by a bucket alone, without a server."""
