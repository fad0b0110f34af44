"""Silence the libraries' own messages, which are meant for programmers."""

from diffusers.utils import logging
from transformers.utils.logging import disable_progress_bar


def silence_libraries() -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    disable_progress_bar()
