"""Image data sets. This package knows files and pixels, but neither the service nor torch."""

import os

os.environ.setdefault(
    "LANCE_LOG", "error"
)  # before Lance is imported: it would warn of data sets that do not exist yet
