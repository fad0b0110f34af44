"""Trainers. Only this package imports torch. It knows a directory (the trainer contract), but neither the service nor the network."""

import logging

logging.getLogger("bitsandbytes").setLevel(
    logging.ERROR
)  # its import warns of an optional package, which nothing here needs
