"""Columns that a base's models add to a data set: latents of its images, embeddings of its texts."""
