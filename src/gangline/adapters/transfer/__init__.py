"""Bytes between a node and an object store, over HTTP."""
