"""Base models in memory: loading, text embedding, denoising, losses and pictures."""
