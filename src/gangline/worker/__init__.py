"""The agent on a node: claims, downloads, supervises the trainer, uploads, heartbeats. Speaks outward only, through ports."""
