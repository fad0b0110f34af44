"""Say that a model cannot be used."""

from gangline.core.errors import BadInput


def refused(model: str, error: Exception) -> BadInput:
    """Return the error for a model that its library does not load or run."""
    words = (str(error) or type(error).__name__).strip().splitlines()
    return BadInput(f"the {model} cannot be used: {words[0] if words else type(error).__name__}")
