"""Commands that run and govern a deployment."""
