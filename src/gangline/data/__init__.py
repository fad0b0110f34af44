"""Image data sets. Knows files and pixels; knows neither the service nor torch."""

import os

os.environ.setdefault(
    "LANCE_LOG", "error"
)  # before Lance is imported: its warnings speak of data sets that are not there yet
