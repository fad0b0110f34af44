"""The agent on a node: it claims jobs, downloads, supervises the trainer, uploads and sends heartbeats.

It connects outward only, through ports.
"""
