"""How numbers are told to people."""


def counted(count: int, noun: str) -> str:
    """`1 photo`, `2 photos`: of nouns that take an s."""
    return f"{count} {noun}{'s' * (count != 1)}"
