"""Describe base models and LoRAs: families, names, metadata, licences. It knows no jobs."""
