"""Columns that a data set gets from a base's models: latents of its images, embeddings of its texts."""
