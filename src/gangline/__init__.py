"""Gangline trains Stable Diffusion on GPUs that can vanish at any moment."""

__version__ = "0.1.0"
