"""Base models in memory: loading, encoding text, denoising, losses, pictures."""
